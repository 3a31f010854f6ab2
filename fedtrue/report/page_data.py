"""What the page's scripts draw from: curves as packed arrays, panels, measures; one JSON document."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtrue.report.heat_map import Panel, chosen_threshold, panels
from fedtrue.report.labels import Group, as_text, differing, rate_texts, status, title
from fedtrue.report.measures import (
    SHOWN_AT_FIRST,
    Measure,
    best_first,
    group_value,
    last_means,
    mean_last_title,
    measures,
)
from fedtrue.report.palette import COLOURS, DASHES, LIGHTER
from fedtrue.report.series import AXES, Curve, curve, group_curve, points_each, thinned
from fedtrue.report.tables import written
from fedtrue.runner.records import Run


def page_data(groups: Sequence[Group], measure: Measure, threshold: float | None) -> dict[str, Any]:
    """All that is drawn; `threshold` is of the chosen measure, the others have their defaults."""
    runs = [run for g in groups for run in g.runs]
    heat = panels(groups)
    arrays = Arrays()
    return {
        "measures": [_measure(each, groups, heat, threshold if each == measure else None) for each in measures(runs)],
        "measure": measure.key,
        "axes": _axes(runs),
        "colours": {"light": COLOURS, "dark": LIGHTER},
        "dashes": DASHES,
        **_curves(groups, measure, arrays),
        "panels": [_panel(each, groups) for each in heat],
        "arrays": arrays.packed,
    }


class Arrays:
    """Arrays as base64 of float32, each kept once: runs of a sweep share their rounds and often their bytes."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, array: np.ndarray | None) -> int | None:
        if array is None:
            return None
        text = base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()
        if text not in self._places:
            self._places[text] = len(self.packed)
            self.packed.append(text)
        return self._places[text]


def _measure(
    measure: Measure, groups: Sequence[Group], heat: Sequence[Panel], threshold: float | None
) -> dict[str, Any]:
    """`order` is of the groups, the best first: whatever on the page names a best takes it from there."""
    runs = [run for g in groups for run in g.runs]
    return {
        "key": measure.key,
        "title": measure.title,
        "statistic": mean_last_title(measure, last_means(runs, measure)),
        "order": best_first(groups, measure),
        "share": measure.percent,
        "higher": measure.higher_is_better,
        "threshold": chosen_threshold(heat, measure, threshold),
    }


def _axes(runs: Sequence[Run]) -> dict[str, str]:
    """Rounds always; bytes and seconds where they were recorded."""
    recorded = {"rounds": ("round",), "bytes": ("bytes_up", "bytes_down"), "seconds": ("seconds",)}
    return {
        axis: said for axis, said in AXES.items() if any(name in run.rounds for run in runs for name in recorded[axis])
    }


def _curves(groups: Sequence[Group], measure: Measure, arrays: Arrays) -> dict[str, Any]:
    """Groups with their mean curves, runs with their own, and how far they were thinned."""
    runs = [run for g in groups for run in g.runs]
    every = measures(runs)
    limit = points_each(len(runs) + len(groups) if len(runs) > len(groups) else len(runs))
    longest = max((len(run.rounds.get("round", ())) for run in runs), default=0)
    order = {id(run): i for i, run in enumerate(runs)}
    keys = differing([g.settings for g in groups])
    first = set(best_first(groups, measure)[:SHOWN_AT_FIRST])

    def packed(found: Curve | None) -> dict[str, Any] | None:
        if found is None:
            return None
        thin = thinned(found, limit)
        names = ("rounds", "bytes", "seconds", "value", "low", "high")
        return {key: arrays.place(getattr(thin, key)) for key in names}

    return {
        "groups": [
            {
                "name": g.name,
                "status": g.status,
                "settings": {title(key): as_text(g.settings.get(key)) for key in keys},
                "runs": [order[id(run)] for run in g.runs],
                "values": {each.key: value.value if (value := group_value(g, each)) else None for each in every},
                "texts": {each.key: written(group_value(g, each), each) for each in every},
                "curves": {each.key: found for each in every if (found := packed(group_curve(g, each)))},
                "shown": i in first,
            }
            for i, g in enumerate(groups)
        ],
        "runs": [
            {
                "name": run.name,
                "seed": run.config.get("seed", 0),
                "status": status(run),
                "curves": {each.key: found for each in every if (found := packed(curve(run, each)))}
                if len(g.runs) > 1
                else {},
            }
            for g in groups
            for run in g.runs
        ],
        "thinned": limit if longest > limit else None,
    }


def _panel(panel: Panel, groups: Sequence[Group]) -> dict[str, Any]:
    place = {id(g): i for i, g in enumerate(groups)}
    at = lambda server, client: panel.cells.get((server, client))
    return {
        "title": panel.title,
        "client_rates": rate_texts(panel.client_rates),
        "server_rates": rate_texts(panel.server_rates),
        "cells": [
            [place[id(g)] if (g := at(server, client)) else None for client in panel.client_rates]
            for server in panel.server_rates
        ],
    }
