"""The report: one HTML file that needs no other file.

Python computes the texts and numbers, the templates web/*.html escape and arrange them, the scripts in web/ draw.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import numpy as np
from markupsafe import Markup

from fedtrue.reports.column import Column
from fedtrue.reports.labels import Group, group_runs, run_status, runs_of
from fedtrue.reports.measures import Measure, best_group, choose_measure, group_value, last_means, mean_last_title
from fedtrue.reports.number_text import bytes_text, duration_text, plural, value_text
from fedtrue.reports.page_data import page_data
from fedtrue.reports.tables import build_table, default_columns, reference_applies
from fedtrue.reports.targets import total_over_rounds
from fedtrue.runner.exploded import exploded_text, find_exploded
from fedtrue.runner.records import Run
from fedtrue.tasks.own_file import short_name
from fedtrue.version import __version__

WEB = Path(__file__).parent / "web"
SCRIPTS = ("common.js", "curves.js", "heat_maps.js", "runs.js")
LONG_HEADING, VERY_LONG_HEADING = 20, 60  # characters
MAX_TASKS_IN_TITLE = 3


def report_page(
    runs: Sequence[Run],
    target: Path,
    *,
    title: str | None = None,
    metric: str | None = None,
    threshold: float | None = None,
) -> str:
    """The HTML of a report.

    Args:
        runs: the runs to show.
        target: where the page will be saved; links to the runs' configs are relative to it.
        title: the heading (default: the names of the tasks).
        metric: the measure to compare by (default: the first one that the runs have).
        threshold: the threshold of the heat maps (default: between the worst and the best cell).
    """
    from plotly.offline import get_plotlyjs

    groups = group_runs(runs)
    measure = choose_measure(runs, metric)
    return render_page(
        {
            "title": title or _default_title(runs),
            "summary": _summary(runs, groups),
            "cards": _cards(runs, groups, measure),
            "runs": _runs_table(groups, measure),
            "best_title": _best_title(runs, measure),
            "reference": _reference_table(groups, measure),
            "configs": [_config(index, run, target) for index, run in enumerate(runs_of(groups))],
            "several_seeds": any(len(g.runs) > 1 for g in groups),
            "data": page_data(groups, measure, threshold),
            "style": (WEB / "page.css").read_text(),
            "plotly": get_plotlyjs(),
            "scripts": "\n".join((WEB / script).read_text() for script in SCRIPTS),
            "version": __version__,
        }
    )


def render_page(variables: Mapping[str, Any]) -> str:
    """The template with these variables; text in them is escaped, and a missing variable is an error."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(WEB),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # does not sort the keys
    templates.globals["number_class"] = _number_class
    return templates.get_template("page.html").render(variables)


def _task_names(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(short_name(str(run.config.get("task", "unknown task"))) for run in runs))


def _default_title(runs: Sequence[Run]) -> str:
    tasks = _task_names(runs)
    return ", ".join(tasks[:MAX_TASKS_IN_TITLE]) + (" and more" if len(tasks) > MAX_TASKS_IN_TITLE else "")


def _summary(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    parts = [", ".join(_task_names(runs)), plural(len(runs), "run")]
    if len(groups) < len(runs):
        parts.append(f"{plural(len(groups), 'setting')}, some with several seeds")
    return " · ".join(parts)


def _cards(runs: Sequence[Run], groups: Sequence[Group], measure: Measure) -> list[dict[str, str]]:
    """The most important numbers, at the top of the page."""
    statuses = [run_status(run) for run in runs]
    exploded = sum(_exploded(run) is not None for run in runs)
    total = lambda *names: sum(total_over_rounds(run, *names) for run in runs)
    unfinished = ", ".join(f"{statuses.count(s)} {s}" for s in ("diverged", "stopped", "running") if s in statuses)
    cards = [
        ("runs", f"{len(runs):,}", (unfinished or "all finished") + (f", {exploded} exploded" if exploded else "")),
        ("communicated", bytes_text(total("bytes_up", "bytes_down")), "up and down, all runs"),
        ("time", duration_text(total("seconds")), "of training, all runs"),
    ]
    best = best_group(groups, measure)
    if best is not None:
        text = value_text(group_value(groups[best], measure), measure) + (" %" if measure.percent else "")
        cards.insert(0, (_best_title(runs, measure), text, groups[best].name))
    return [dict(zip(("name", "value", "note"), card)) for card in cards]


def _best_title(runs: Sequence[Run], measure: Measure) -> str:
    """What the page calls best: 'highest test accuracy, mean of the 10 evaluations in the last 100 rounds'."""
    direction = "highest" if measure.higher_is_better else "lowest"
    return f"{direction} {mean_last_title(measure, last_means(runs, measure))}"


def _runs_table(groups: Sequence[Group], measure: Measure) -> dict[str, Any]:
    """All groups with the settings that differ; one check box per curve, names and seeds are links to the configs."""
    keys = [key for key in default_columns(groups, measure) if key not in ("reference", "difference")]
    if "status" not in keys:
        keys.insert(keys.index(f"mean_last.{measure.key}"), "status")
    table, best = build_table(groups, measure.key, keys), best_group(groups, measure)
    first_runs = np.cumsum([0, *(len(g.runs) for g in groups)]).tolist()
    rows = [
        {
            "index": index,
            "name": g.name,
            "best": index == best,
            "status_class": status_class(g.status),
            "links": [{"index": first_run + i, "seed": seed} for i, seed in enumerate(g.seeds)],
            "cells": [_cell(*cell) for cell in zip(table.columns, texts, values)],
        }
        for index, (g, first_run, texts, values) in enumerate(zip(groups, first_runs, table.texts(), table.values()))
    ]
    return {"columns": table.columns, "rows": rows}


def _cell(column: Column, text: str, value: Any) -> dict[str, Any]:
    """`order` is the number by which the column is sorted, None if it is sorted by text."""
    order = getattr(value, "value", value)
    is_number = isinstance(order, int | float)
    return {"key": column.key, "text": text, "numeric": column.numeric, "order": order if is_number else None}


def _number_class(column: Column) -> str:
    """The CSS class of a numeric column; a long heading makes the column wider instead of many lines high."""
    if not column.numeric:
        return ""
    length = len(column.title)
    width = " very-long" if length > VERY_LONG_HEADING else " long" if length > LONG_HEADING else ""
    return Markup(' class="number{}"').format(width)


def status_class(text: str) -> str:
    return "diverged" if "diverged" in text else "running" if "running" in text else "finished"


def _reference_table(groups: Sequence[Group], measure: Measure) -> dict[str, Any] | None:
    """Our numbers next to the published ones, for the runs whose settings have a `reference`."""
    if not reference_applies(groups, measure):
        return None
    with_reference = [g for g in groups if g.reference is not None]
    table = build_table(with_reference, measure.key, ["run", measure.key, "reference", "difference"])
    differences = [row[-1] or 0.0 for row in table.values()]
    largest = max(map(abs, differences)) or 1.0
    title = mean_last_title(measure, last_means(runs_of(with_reference), measure))
    return {
        "note": f"{title[0].upper()}{title[1:]}, compared with the published number",
        "columns": table.columns,
        "rows": [_reference_row(texts, number, largest) for texts, number in zip(table.texts(), differences)],
    }


def _reference_row(texts: Sequence[str], difference: float, largest: float) -> dict[str, Any]:
    """With a bar whose length is relative to the largest difference."""
    name, *numbers = texts
    side = "ahead" if difference >= 0 else "behind"
    return {"name": name, "numbers": numbers, "side": side, "part": f"{abs(difference) / largest:.3f}"}


def _config(index: int, run: Run, target: Path) -> dict[str, Any]:
    """The settings and the origin of a run; they are on the page, so the linked file is not needed."""
    link = Path(os.path.relpath(run.config_file.resolve(), target.resolve().parent)).as_posix()
    exploded = _exploded(run)
    told = f"; {exploded_text(exploded, (run.summary or {}).get('method'))}" if exploded else ""
    return {
        "index": index,
        "name": run.name,
        "state": f"seed {run.config.get('seed', 0)}, {run_status(run)}{told}",
        "command": run.origin.get("command"),
        "link": quote(link),
        "link_text": link,
        "text": run.config_text,
    }


def _exploded(run: Run) -> Mapping[str, Any] | None:
    """As in the summary; for a run that has not ended, or of an older version, found in its records."""
    if run.summary and "exploded" in run.summary:
        return run.summary["exploded"]
    found = find_exploded(run.rounds)
    return found._asdict() if found else None
