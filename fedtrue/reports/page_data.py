"""The JSON document that the page's scripts draw: measures, curves as packed arrays, heat-map panels."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtrue.reports.heat_map import Panel, heat_map_panels, threshold_or_default
from fedtrue.reports.labels import (
    Group,
    differing_settings,
    rate_texts,
    run_status,
    runs_of,
    setting_text,
    setting_title,
)
from fedtrue.reports.measures import (
    MAX_CURVES_AT_FIRST,
    Measure,
    group_value,
    last_means,
    mean_last_title,
    measures,
    rank_groups,
)
from fedtrue.reports.number_text import value_text
from fedtrue.reports.palette import COLOURS, DARK_PAGE_COLOURS, DASHES
from fedtrue.reports.series import AXES, Curve, group_curve, points_per_curve, run_curve, thin_curve
from fedtrue.runner.records import Run


def page_data(groups: Sequence[Group], measure: Measure, threshold: float | None) -> dict[str, Any]:
    """Everything that is drawn; `threshold` belongs to the chosen measure, the others have their defaults."""
    runs = runs_of(groups)
    panels = heat_map_panels(groups)
    arrays = PackedArrays()
    known = measures(runs)
    return {
        "measures": [_measure(other, groups, panels, threshold if other == measure else None) for other in known],
        "measure": measure.key,
        "axes": _axes(runs),
        "colours": {"light": COLOURS, "dark": DARK_PAGE_COLOURS},
        "dashes": DASHES,
        **_curves(groups, measure, known, arrays),
        "panels": [_panel(panel, groups) for panel in panels],
        "arrays": arrays.packed,
    }


class PackedArrays:
    """Arrays as base64 of float32; equal arrays, such as the rounds of a sweep's runs, are stored once."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._indices: dict[str, int] = {}

    def index_of(self, array: np.ndarray | None) -> int | None:
        """The index of the array in `packed`; a new array is added."""
        if array is None:
            return None
        text = base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()
        if text not in self._indices:
            self._indices[text] = len(self.packed)
            self.packed.append(text)
        return self._indices[text]


def _measure(
    measure: Measure, groups: Sequence[Group], panels: Sequence[Panel], threshold: float | None
) -> dict[str, Any]:
    """`order` ranks the groups, best first; everything on the page that names a best run uses it."""
    return {
        "key": measure.key,
        "title": measure.title,
        "statistic": mean_last_title(measure, last_means(runs_of(groups), measure)),
        "order": rank_groups(groups, measure),
        "percent": measure.percent,
        "higher": measure.higher_is_better,
        "threshold": threshold_or_default(panels, measure, threshold),
    }


def _axes(runs: Sequence[Run]) -> dict[str, str]:
    """Rounds always; bytes and seconds if they were recorded."""
    records = {"rounds": ("round",), "bytes": ("bytes_up", "bytes_down"), "seconds": ("seconds",)}
    is_recorded = lambda axis: any(name in run.rounds for run in runs for name in records[axis])
    return {axis: title for axis, title in AXES.items() if is_recorded(axis)}


def _curves(
    groups: Sequence[Group], measure: Measure, known: Sequence[Measure], arrays: PackedArrays
) -> dict[str, Any]:
    """Groups with their mean curves, runs with their own, and how many points were kept if curves were thinned."""
    runs = runs_of(groups)
    limit = points_per_curve(len(runs) + len(groups) if len(runs) > len(groups) else len(runs))
    longest = max((len(run.rounds.get("round", ())) for run in runs), default=0)
    run_index = {id(run): index for index, run in enumerate(runs)}
    keys = differing_settings([g.settings for g in groups])
    shown_at_first = set(rank_groups(groups, measure)[:MAX_CURVES_AT_FIRST])
    packed = lambda curve: _packed_curve(curve, limit, arrays)
    return {
        "groups": [
            {
                "name": g.name,
                "status": g.status,
                "settings": {setting_title(key): setting_text(g.settings.get(key)) for key in keys},
                "runs": [run_index[id(run)] for run in g.runs],
                "values": {m.key: value.value if (value := group_value(g, m)) else None for m in known},
                "texts": {m.key: value_text(group_value(g, m), m) for m in known},
                "curves": {m.key: curve for m in known if (curve := packed(group_curve(g, m)))},
                "shown": index in shown_at_first,
            }
            for index, g in enumerate(groups)
        ],
        "runs": [
            {
                "name": run.name,
                "seed": run.config.get("seed", 0),
                "status": run_status(run),
                "curves": {m.key: curve for m in known if (curve := packed(run_curve(run, m)))}
                if len(g.runs) > 1
                else {},
            }
            for g in groups
            for run in g.runs
        ],
        "thinned": limit if longest > limit else None,
    }


def _packed_curve(curve: Curve | None, limit: int, arrays: PackedArrays) -> dict[str, Any] | None:
    if curve is None:
        return None
    thin = thin_curve(curve, limit)
    names = ("rounds", "bytes", "seconds", "value", "low", "high")
    return {name: arrays.index_of(getattr(thin, name)) for name in names}


def _panel(panel: Panel, groups: Sequence[Group]) -> dict[str, Any]:
    """Cells are indices of groups, null where no run has these rates."""
    group_index = {id(g): index for index, g in enumerate(groups)}
    group_at = lambda server, client: panel.cells.get((server, client))
    return {
        "title": panel.title,
        "client_rates": rate_texts(panel.client_rates),
        "server_rates": rate_texts(panel.server_rates),
        "cells": [
            [group_index[id(g)] if (g := group_at(server, client)) else None for client in panel.client_rates]
            for server in panel.server_rates
        ],
    }
