"""The paper's Fig. 3: a measure over client rate × server rate, one panel per combination of the other settings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedtrue.reports.labels import Group, describe_settings, differing_settings, flatten_config
from fedtrue.reports.measures import Measure, group_value
from fedtrue.reports.targets import reaches_target, target_text

CLIENT_RATE, SERVER_RATE = "client.learning_rate", "server.learning_rate"
DEFAULT_THRESHOLD = 0.75  # of the way from the worst cell to the best


@dataclass(frozen=True)
class Panel:
    """Cells by (server rate, client rate). All panels have the same rates, so that they can be compared."""

    title: str
    client_rates: tuple[float, ...]
    server_rates: tuple[float, ...]
    cells: dict[tuple[float, float], Group]


def heat_map_panels(groups: Sequence[Group]) -> list[Panel]:
    """Panels with at least two client rates and two server rates; runs without explicit rates are left out."""
    with_rates = [g for g in groups if _is_rate(g.settings.get(CLIENT_RATE)) and _is_rate(g.settings.get(SERVER_RATE))]
    by_other_settings: dict[str, tuple[dict[str, Any], list[Group]]] = {}
    for group in with_rates:
        others = {key: value for key, value in group.settings.items() if key not in (CLIENT_RATE, SERVER_RATE)}
        by_other_settings.setdefault(repr(sorted(others.items(), key=repr)), (others, []))[1].append(group)
    grids = [(others, members) for others, members in by_other_settings.values() if _is_grid(members)]
    keys = differing_settings([others for others, _ in grids])
    client_rates = tuple(sorted({g.settings[CLIENT_RATE] for _, members in grids for g in members}))
    server_rates = tuple(sorted({g.settings[SERVER_RATE] for _, members in grids for g in members}))
    return [
        Panel(
            describe_settings(others, keys) or _method_text(members[0]),
            client_rates,
            server_rates,
            {(g.settings[SERVER_RATE], g.settings[CLIENT_RATE]): g for g in members},
        )
        for others, members in grids
    ]


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_grid(groups: Sequence[Group]) -> bool:
    return all(len({g.settings[rate] for g in groups}) > 1 for rate in (CLIENT_RATE, SERVER_RATE))


def _method_text(group: Group) -> str:
    settings = flatten_config(group.runs[0].config)
    keys = [key for key in ("task", "client.name", "server.name", "correction") if key in settings]
    return describe_settings(settings, keys)


def cell_value(group: Group, measure: Measure) -> float | None:
    """The mean of the last evaluations; None if a seed diverged, because such a rate should not be used."""
    value = None if "diverged" in group.status else group_value(group, measure)
    return value.value if value else None


def threshold_or_default(panels: Sequence[Panel], measure: Measure, threshold: float | None) -> float | None:
    """The given threshold, or the default; None if no cell has a value to choose it by."""
    return default_threshold(panels, measure) if threshold is None else threshold


def default_threshold(panels: Sequence[Panel], measure: Measure) -> float | None:
    """Three quarters of the way from the worst cell to the best, rounded, but never beyond the best.

    Losses span orders of magnitude where a learning rate is bad, so for them the way is measured by ratios.
    """
    values = [v for panel in panels for g in panel.cells.values() if (v := cell_value(g, measure)) is not None]
    if not values:
        return None
    worst, best = (min(values), max(values)) if measure.higher_is_better else (max(values), min(values))
    if worst == best:
        return best
    by_ratio = not measure.higher_is_better and best > 0
    exact = worst * (best / worst) ** DEFAULT_THRESHOLD if by_ratio else worst + DEFAULT_THRESHOLD * (best - worst)
    step = 10.0 ** math.floor(math.log10(abs(best - exact) / 2))
    return float(f"{round(exact / step) * step:.12g}")


def count_reached(panel: Panel, measure: Measure, threshold: float) -> int:
    """How many cells reach the threshold; diverged cells do not."""
    return sum(reaches_target(cell_value(group, measure), measure, threshold) for group in panel.cells.values())


def count_text(panel: Panel, measure: Measure, threshold: float) -> str:
    """'10 of 28 cells above 20 %'."""
    word, value = "above" if measure.higher_is_better else "below", target_text(threshold, measure)
    return f"{count_reached(panel, measure, threshold)} of {len(panel.cells)} cells {word} {value}"


def count_record(panel: Panel, measure: Measure, threshold: float) -> dict[str, Any]:
    """How many cells of a panel reach the threshold, for `--json`."""
    return {
        "panel": panel.title,
        "threshold": threshold,
        "count": count_reached(panel, measure, threshold),
        "cells": len(panel.cells),
        "text": count_text(panel, measure, threshold),
    }
