"""The report's figures as files for papers: PNG to look at, PDF and SVG with text that stays text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedtrue.report.curves import draw_curves
from fedtrue.report.heat_map import chosen_threshold, panels
from fedtrue.report.heat_picture import draw_heat_maps
from fedtrue.report.labels import group
from fedtrue.report.measures import SHOWN_AT_FIRST, Measure, best_first, chosen_measure
from fedtrue.report.series import AXES, Curve, group_curve
from fedtrue.report.tables import UNITS
from fedtrue.runner.records import Run

FORMATS = ("png", "pdf", "svg")


def draw_pictures(
    runs: Sequence[Run],
    folder: Path,
    formats: Sequence[str],
    metric: str | None = None,
    threshold: float | None = None,
    limits: tuple[float, float] | None = None,
) -> list[Path]:
    """Curves against rounds and bytes, and the heat maps where rates vary; returns what was written.

    `limits` are the lowest and highest value of the measure that curves show: where they end, say.
    """
    groups, measure = group(runs), chosen_measure(runs, metric)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    shown = [groups[i] for i in sorted(best_first(groups, measure)[:SHOWN_AT_FIRST])]
    for axis in ("rounds", "bytes"):
        found = {g.name: c for g in shown if (c := group_curve(g, measure)) is not None}
        if found and any(getattr(c, axis).any() for c in found.values()):
            for kind in formats:
                written.append(folder / f"curves-{axis}.{kind}")
                _draw_against(axis, found, measure, written[-1], len(groups), limits)
    heat = panels(groups)
    threshold = chosen_threshold(heat, measure, threshold)
    if heat and threshold is not None:
        for kind in formats:
            written.append(folder / f"heat-maps.{kind}")
            draw_heat_maps(heat, measure, threshold, written[-1])
    return written


def _draw_against(
    axis: str, curves: dict[str, Curve], measure: Measure, path: Path, total: int, limits: tuple[float, float] | None
) -> None:
    scale = 100 if measure.percent else 1
    unit, word = _unit(axis, max(getattr(c, axis)[-1] for c in curves.values()))
    draw_curves(
        {name: (getattr(c, axis) / unit, scale * c.value) for name, c in curves.items()},
        path,
        title="" if len(curves) == total else f"the {len(curves)} best of {total}",
        y_label=measure.title + measure.unit,
        x_label=AXES[axis] + word,
        bands={
            name: (scale * c.low, scale * c.high)
            for name, c in curves.items()
            if c.low is not None and c.high is not None
        },
        limits=limits and (scale * limits[0], scale * limits[1]),
    )


def _unit(axis: str, largest: float) -> tuple[float, str]:
    if axis != "bytes":
        return 1.0, ""
    power = int(np.clip(np.log10(max(largest, 1)) // 3, 0, len(UNITS) - 1))
    return 1000.0**power, f" ({UNITS[power]})"
