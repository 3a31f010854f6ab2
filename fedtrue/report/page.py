"""The report: one HTML file that needs nothing else.

Python finds the words and numbers, the templates web/*.html lay them out, escaped, and the scripts in web/ draw.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import numpy as np
from markupsafe import Markup

from fedtrue.report.labels import Group, group, status
from fedtrue.report.measures import Measure, best_group, chosen_measure, group_value, last_means, mean_last_title
from fedtrue.report.page_data import page_data
from fedtrue.report.tables import (
    Column,
    bytes_text,
    default_columns,
    duration_text,
    reference_applies,
    table_of,
    written,
)
from fedtrue.runner.records import Run
from fedtrue.version import __version__

WEB = Path(__file__).parent / "web"
SCRIPTS = ("common.js", "curves.js", "heat_maps.js", "runs.js")
LONG_HEADING, VERY_LONG_HEADING = 20, 60  # characters


def page(
    runs: Sequence[Run],
    target: Path,
    *,
    name: str | None = None,
    metric: str | None = None,
    threshold: float | None = None,
) -> str:
    """The page's text. `target` is where it will lie: links to the runs' configs are relative to it."""
    from plotly.offline import get_plotlyjs

    groups = group(runs)
    measure = chosen_measure(runs, metric)
    return rendered(
        {
            "title": name or _title(runs),
            "summary": _summary(runs, groups),
            "cards": _cards(runs, groups, measure),
            "runs": _runs_table(groups, measure),
            "best_title": _best_title(runs, measure),
            "reference": _reference(groups, measure),
            "configs": [_config(i, run, target) for i, run in enumerate(r for g in groups for r in g.runs)],
            "several_seeds": any(len(g.runs) > 1 for g in groups),
            "data": page_data(groups, measure, threshold),
            "style": (WEB / "page.css").read_text(),
            "plotly": get_plotlyjs(),
            "scripts": "\n".join((WEB / script).read_text() for script in SCRIPTS),
            "version": __version__,
        }
    )


def rendered(parts: Mapping[str, Any]) -> str:
    """The page of these parts; whatever text they hold is escaped, and one that is missing is an error."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(WEB),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # keys in their own order
    templates.globals["number_class"] = _number_class
    return templates.get_template("page.html").render(parts)


def _title(runs: Sequence[Run]) -> str:
    tasks = list(dict.fromkeys(str(run.config.get("task", "runs")) for run in runs))
    return ", ".join(tasks[:3]) + (" and more" if len(tasks) > 3 else "")


def _summary(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    tasks = list(dict.fromkeys(str(run.config.get("task", "?")) for run in runs))
    return " · ".join(
        [
            ", ".join(tasks),
            counted(len(runs), "run"),
            *([f"{counted(len(groups), 'setting')}, some with several seeds"] if len(groups) < len(runs) else []),
        ]
    )


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _cards(runs: Sequence[Run], groups: Sequence[Group], measure: Measure) -> list[dict[str, str]]:
    """The few numbers people ask for first."""
    states = [status(run) for run in runs]
    sums = lambda *names: float(sum(run.rounds[name].sum() for run in runs for name in names if name in run.rounds))
    others = ", ".join(f"{states.count(s)} {s}" for s in ("diverged", "running") if s in states)
    cards = [
        ("runs", f"{len(runs):,}", others or "all finished"),
        ("communicated", bytes_text(sums("bytes_up", "bytes_down")), "up and down, all runs"),
        ("time", duration_text(sums("seconds")), "of training, all runs"),
    ]
    place = best_group(groups, measure)
    if place is not None:
        text = written(group_value(groups[place], measure), measure) + (" %" if measure.percent else "")
        cards.insert(0, (_best_title(runs, measure), text, groups[place].name))
    return [dict(zip(("name", "value", "note"), card)) for card in cards]


def _best_title(runs: Sequence[Run], measure: Measure) -> str:
    """'highest test accuracy, mean of the 10 evaluations in the last 100 rounds': what the page calls best."""
    direction = "highest" if measure.higher_is_better else "lowest"
    return f"{direction} {mean_last_title(measure, last_means(runs, measure))}"


def _runs_table(groups: Sequence[Group], measure: Measure) -> dict[str, Any]:
    """All groups with what sets them apart; sortable, a tick box per curve, names and seeds linked to the configs."""
    keys = [key for key in default_columns(groups, measure) if key not in ("reference", "difference")]
    if "status" not in keys:
        keys.insert(keys.index(f"mean_last.{measure.key}"), "status")
    table, best = table_of(groups, measure.key, keys), best_group(groups, measure)
    starts = np.cumsum([0, *(len(g.runs) for g in groups)]).tolist()
    rows = [
        {
            "place": place,
            "name": g.name,
            "best": place == best,
            "status_class": status_class(g.status),
            "links": [{"place": start + i, "seed": seed} for i, seed in enumerate(g.seeds)],
            "cells": [_cell(*entry) for entry in zip(table.columns, texts, values)],
        }
        for place, (g, start, texts, values) in enumerate(zip(groups, starts, table.texts(), table.values()))
    ]
    return {"columns": table.columns, "rows": rows}


def _cell(column: Column, text: str, value: Any) -> dict[str, Any]:
    """`order` is what the column is sorted by, where that is a number."""
    order = getattr(value, "value", value)
    sortable = isinstance(order, int | float)
    return {"key": column.key, "text": text, "numeric": column.numeric, "order": order if sortable else None}


def _number_class(column: Column) -> str:
    """To the right; a long heading gets room for few lines instead of many."""
    if not column.numeric:
        return ""
    length = len(column.title)
    wide = " very-long" if length > VERY_LONG_HEADING else " long" if length > LONG_HEADING else ""
    return Markup(' class="number{}"').format(wide)


def status_class(text: str) -> str:
    return "diverged" if "diverged" in text else "running" if "running" in text else "finished"


def _reference(groups: Sequence[Group], measure: Measure) -> dict[str, Any] | None:
    """Our numbers next to the published ones, for the runs whose settings have a `reference`."""
    if not reference_applies(groups, measure):
        return None
    named = [g for g in groups if g.reference is not None]
    table = table_of(named, measure.key, ["run", measure.key, "reference", "difference"])
    away = [row[-1] for row in table.values()]
    largest = max((abs(each) for each in away if each is not None), default=0.0) or 1.0
    title = mean_last_title(measure, last_means([run for g in named for run in g.runs], measure))
    return {
        "note": f"{title[0].upper()}{title[1:]}, compared with the published number",
        "columns": table.columns,
        "rows": [_reference_row(texts, each or 0.0, largest) for texts, each in zip(table.texts(), away)],
    }


def _reference_row(texts: Sequence[str], away: float, largest: float) -> dict[str, Any]:
    """With a bar as long as the part of the largest difference."""
    name, *numbers = texts
    side = "ahead" if away >= 0 else "behind"
    return {"name": name, "numbers": numbers, "side": side, "part": f"{abs(away) / largest:.3f}"}


def _config(place: int, run: Run, target: Path) -> dict[str, Any]:
    """A run's settings and where they came from, readable without the file that the link leads to."""
    link = Path(os.path.relpath(run.config_file.resolve(), target.resolve().parent)).as_posix()
    return {
        "place": place,
        "name": run.name,
        "state": f"seed {run.config.get('seed', 0)}, {status(run)}",
        "command": run.origin.get("command"),
        "link": quote(link),
        "link_text": link,
        "text": run.config_text,
    }
