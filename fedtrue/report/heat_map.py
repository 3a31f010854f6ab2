"""The paper's Fig. 3: a measure over client rate × server rate, a panel for each combination of everything else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedtrue.report.labels import Group, described, differing, flatten
from fedtrue.report.measures import Measure, group_value
from fedtrue.report.targets import reaches, target_text

CLIENT_RATE, SERVER_RATE = "client.learning_rate", "server.learning_rate"


@dataclass(frozen=True)
class Panel:
    """Cells by (server rate, client rate); the rates are those of all panels, so that panels can be compared."""

    title: str
    client_rates: tuple[float, ...]
    server_rates: tuple[float, ...]
    cells: dict[tuple[float, float], Group]


def panels(groups: Sequence[Group]) -> list[Panel]:
    """A panel needs two rates of each kind; runs that leave a rate to the task have no place in it."""
    placed = [g for g in groups if _is_rate(g.settings.get(CLIENT_RATE)) and _is_rate(g.settings.get(SERVER_RATE))]
    found: dict[str, tuple[dict[str, Any], list[Group]]] = {}
    for each in placed:
        others = {key: value for key, value in each.settings.items() if key not in (CLIENT_RATE, SERVER_RATE)}
        found.setdefault(repr(sorted(others.items(), key=repr)), (others, []))[1].append(each)
    kept = [(others, members) for others, members in found.values() if _is_grid(members)]
    keys = differing([others for others, _ in kept])
    client_rates = tuple(sorted({g.settings[CLIENT_RATE] for _, members in kept for g in members}))
    server_rates = tuple(sorted({g.settings[SERVER_RATE] for _, members in kept for g in members}))
    return [
        Panel(
            described(others, keys) or _method(members[0]),
            client_rates,
            server_rates,
            {(g.settings[SERVER_RATE], g.settings[CLIENT_RATE]): g for g in members},
        )
        for others, members in kept
    ]


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_grid(groups: Sequence[Group]) -> bool:
    return all(len({g.settings[rate] for g in groups}) > 1 for rate in (CLIENT_RATE, SERVER_RATE))


def _method(group: Group) -> str:
    settings = flatten(group.runs[0].config)
    return described(settings, [key for key in ("task", "client.name", "server.name", "correction") if key in settings])


def cell_value(group: Group, measure: Measure) -> float | None:
    """The mean of the last evaluations; None where a seed diverged, for such a rate is not one to use."""
    value = None if "diverged" in group.status else group_value(group, measure)
    return value.value if value else None


def chosen_threshold(panels: Sequence[Panel], measure: Measure, given: float | None) -> float | None:
    """The one given, or the default; None where no cell has a value to choose it by."""
    return default_threshold(panels, measure) if given is None else given


def default_threshold(panels: Sequence[Panel], measure: Measure) -> float | None:
    """Three quarters of the way from the worst cell to the best, rounded, but never past the best.

    The way is by ratios for losses, which span orders of magnitude where a rate is bad.
    """
    values = [v for panel in panels for g in panel.cells.values() if (v := cell_value(g, measure)) is not None]
    if not values:
        return None
    worst, best = (min(values), max(values)) if measure.higher_is_better else (max(values), min(values))
    if worst == best:
        return best
    by_ratio = not measure.higher_is_better and best > 0
    wanted = worst * (best / worst) ** 0.75 if by_ratio else worst + 0.75 * (best - worst)
    step = 10.0 ** math.floor(math.log10(abs(best - wanted) / 2))
    return float(f"{round(wanted / step) * step:.12g}")


def count_beyond(panel: Panel, measure: Measure, threshold: float) -> int:
    """The cells that reach the threshold; those that diverged do not."""
    return sum(reaches(cell_value(group, measure), measure, threshold) for group in panel.cells.values())


def count_text(panel: Panel, measure: Measure, threshold: float) -> str:
    """'10 of 28 cells above 20 %'."""
    word, value = "above" if measure.higher_is_better else "below", target_text(threshold, measure)
    return f"{count_beyond(panel, measure, threshold)} of {len(panel.cells)} cells {word} {value}"


def count_record(panel: Panel, measure: Measure, threshold: float) -> dict[str, Any]:
    """How many cells of a panel reach the threshold."""
    return {
        "panel": panel.title,
        "threshold": threshold,
        "count": count_beyond(panel, measure, threshold),
        "cells": len(panel.cells),
        "text": count_text(panel, measure, threshold),
    }
