"""The figures of a report as files for papers: PNG for the screen, PDF and SVG with text as text."""

from collections.abc import Sequence
from pathlib import Path

from fedtrue.reports.curves import draw_curves
from fedtrue.reports.heat_map import heat_map_panels, threshold_or_default
from fedtrue.reports.heat_picture import draw_heat_maps
from fedtrue.reports.labels import Group, group_runs
from fedtrue.reports.measures import MAX_CURVES_AT_FIRST, Measure, choose_measure, rank_groups
from fedtrue.reports.number_text import byte_unit
from fedtrue.reports.series import AXES, Curve, group_curve
from fedtrue.runner.records import Run


def draw_pictures(
    runs: Sequence[Run],
    folder: Path,
    formats: Sequence[str],
    metric: str | None = None,
    threshold: float | None = None,
    y_range: tuple[float, float] | None = None,
) -> list[Path]:
    """Draws curves against rounds and bytes, and heat maps if rates vary; returns the files.

    `y_range`: the lowest and highest value of the measure that the curves show.
    """
    groups, measure = group_runs(runs), choose_measure(runs, metric)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    curves = _best_curves(groups, measure)
    for axis in ("rounds", "bytes"):
        if any(getattr(curve, axis).any() for curve in curves.values()):
            for suffix in formats:
                files.append(folder / f"curves-{axis}.{suffix}")
                _draw_against(axis, curves, measure, files[-1], len(groups), y_range)
    panels = heat_map_panels(groups)
    threshold = threshold_or_default(panels, measure, threshold)
    if panels and threshold is not None:
        for suffix in formats:
            files.append(folder / f"heat-maps.{suffix}")
            draw_heat_maps(panels, measure, threshold, files[-1])
    return files


def _best_curves(groups: Sequence[Group], measure: Measure) -> dict[str, Curve]:
    """The curves of the best groups by name, in the order of the groups."""
    best = [groups[index] for index in sorted(rank_groups(groups, measure)[:MAX_CURVES_AT_FIRST])]
    return {group.name: curve for group in best if (curve := group_curve(group, measure)) is not None}


def _draw_against(
    axis: str, curves: dict[str, Curve], measure: Measure, path: Path, total: int, y_range: tuple[float, float] | None
) -> None:
    scale = 100 if measure.percent else 1
    unit, unit_text = _axis_unit(axis, max(getattr(curve, axis)[-1] for curve in curves.values()))
    draw_curves(
        {name: (getattr(curve, axis) / unit, scale * curve.value) for name, curve in curves.items()},
        path,
        title="" if len(curves) == total else f"the {len(curves)} best of {total}",
        y_label=measure.title + measure.unit,
        x_label=AXES[axis] + unit_text,
        bands={
            name: (scale * curve.low, scale * curve.high)
            for name, curve in curves.items()
            if curve.low is not None and curve.high is not None
        },
        y_range=y_range and (scale * y_range[0], scale * y_range[1]),
    )


def _axis_unit(axis: str, largest: float) -> tuple[float, str]:
    if axis != "bytes":
        return 1.0, ""
    factor, unit = byte_unit(largest)
    return factor, f" ({unit})"
