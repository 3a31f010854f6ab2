"""The report: one HTML file that needs nothing else. Python writes tables and texts, the scripts in web/ draw."""

import json
import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import fedtrue
from fedtrue.report.labels import Group, group, status
from fedtrue.report.measures import Measure, best_group, chosen_measure, group_value, last_means, mean_last_title
from fedtrue.report.page_data import page_data
from fedtrue.report.tables import (
    Table,
    bytes_text,
    default_columns,
    duration_text,
    paper_applies,
    table_of,
    written,
)
from fedtrue.runner.records import CONFIG, Run

WEB = Path(__file__).parent / "web"
SCRIPTS = ("common.js", "curves.js", "heat_maps.js", "runs.js")


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
    data = page_data(groups, measure, threshold)
    parts = {
        "title": escape(name or _title(runs)),
        "summary": _summary(runs, groups),
        "cards": _cards(runs, groups, measure),
        "runs": _runs_table(groups, measure),
        "best_title": escape(_best_title(runs, measure)),
        "paper": _paper(groups, measure),
        "configs": "".join(_config(i, run, target) for i, run in enumerate(r for g in groups for r in g.runs)),
        "heat_hidden": "" if data["panels"] else "hidden",
        "seeds_hidden": "" if any(len(g.runs) > 1 for g in groups) else "hidden",
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "style": (WEB / "page.css").read_text(),
        "plotly": get_plotlyjs(),
        "scripts": "\n".join((WEB / script).read_text() for script in SCRIPTS),
        "version": fedtrue.__version__,
    }
    return filled((WEB / "page.html").read_text(), parts)


def filled(template: str, parts: dict[str, str]) -> str:
    """{{name}} by parts[name], in one pass: what is put in is not looked through again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _title(runs: Sequence[Run]) -> str:
    tasks = list(dict.fromkeys(str(run.config.get("task", "runs")) for run in runs))
    return ", ".join(tasks[:3]) + (" and more" if len(tasks) > 3 else "")


def _summary(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    tasks = list(dict.fromkeys(str(run.config.get("task", "?")) for run in runs))
    return " · ".join(
        [
            escape(", ".join(tasks)),
            counted(len(runs), "run"),
            *([f"{counted(len(groups), 'setting')}, some with several seeds"] if len(groups) < len(runs) else []),
        ]
    )


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _cards(runs: Sequence[Run], groups: Sequence[Group], measure: Measure) -> str:
    """The few numbers people ask for first."""
    states = [status(run) for run in runs]
    sums = lambda *names: float(sum(run.rounds[name].sum() for run in runs for name in names if name in run.rounds))
    place = best_group(groups, measure)
    cards = []
    if place is not None:
        text = written(group_value(groups[place], measure), measure) + (" %" if measure.percent else "")
        cards.append((_best_title(runs, measure), text, groups[place].name))
    others = ", ".join(f"{states.count(s)} {s}" for s in ("diverged", "running") if s in states)
    cards.append(("runs", f"{len(runs):,}", others or "all finished"))
    cards.append(("communicated", bytes_text(sums("bytes_up", "bytes_down")), "up and down, all runs"))
    cards.append(("time", duration_text(sums("seconds")), "of training, all runs"))
    row = '<li><span class="card-name">{}</span><strong>{}</strong><span class="card-note">{}</span></li>'
    return "".join(row.format(*map(escape, card)) for card in cards)


def _best_title(runs: Sequence[Run], measure: Measure) -> str:
    """'highest test accuracy, mean of the 10 evaluations in the last 100 rounds': what the page calls best."""
    direction = "highest" if measure.higher_is_better else "lowest"
    return f"{direction} {mean_last_title(measure, last_means(runs, measure))}"


def _runs_table(groups: Sequence[Group], measure: Measure) -> str:
    """All groups with what sets them apart; sortable, a tick box a curve, names and seeds linked to the configs."""
    keys = [key for key in default_columns(groups, measure) if key not in ("paper", "difference")]
    if "status" not in keys:
        keys.insert(keys.index(f"mean_last.{measure.key}"), "status")
    table = table_of(groups, measure.key, keys)
    heads = "".join(
        f'<th scope="col"{_numeric(column.numeric, column.title)} aria-sort="none">'
        f'<button type="button">{escape(column.title)}</button></th>'
        for column in table.columns
    )
    starts = np.cumsum([0, *(len(g.runs) for g in groups)])
    rows = [
        _row(place, int(starts[place]), g, table, texts, values, place == best_group(groups, measure))
        for place, (g, texts, values) in enumerate(zip(groups, table.texts(), table.values()))
    ]
    return f'<thead><tr><th scope="col">curve</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>'


def _row(
    place: int, start: int, g: Group, table: Table, texts: Sequence[str], values: Sequence[Any], best: bool
) -> str:
    mark = ' <span class="status best">best</span>' if best else ""
    cells = []
    for column, text, value in zip(table.columns, texts, values):
        order = getattr(value, "value", value)
        order = f' data-order="{order}"' if isinstance(order, int | float) else ""
        if column.key == "run":
            cells.append(f'<th scope="row"><a href="#run-{start}">{escape(text)}</a>{mark}</th>')
        elif column.key == "seed":
            links = (f'<a href="#run-{start + i}">{escape(str(seed))}</a>' for i, seed in enumerate(g.seeds))
            cells.append(f'<td class="seeds">{", ".join(links)}</td>')
        elif column.key == "status":
            cells.append(f'<td><span class="status {status_class(text)}">{escape(text)}</span></td>')
        else:
            cells.append(f"<td{_numeric(column.numeric)}{order}>{escape(text)}</td>")
    box = f'<input type="checkbox" data-group="{place}" aria-label="{escape(f"draw the curve of {g.name}")}">'
    swatch = '<span class="swatch" aria-hidden="true"></span>'
    return f'<tr><td class="tick">{box}{swatch}</td>{"".join(cells)}</tr>'


def _numeric(numeric: bool, heading: str = "") -> str:
    """To the right; a long heading gets room for two lines instead of five."""
    return f' class="number{" long" if len(heading) > 20 else ""}"' if numeric else ""


def status_class(text: str) -> str:
    return "diverged" if "diverged" in text else "running" if "running" in text else "finished"


def _paper(groups: Sequence[Group], measure: Measure) -> str:
    """Ours beside the paper's, where a run names the paper's number."""
    if not paper_applies(groups, measure):
        return ""
    named = [g for g in groups if g.paper is not None]
    table = table_of(named, measure.key, ["run", measure.key, "paper", "difference"])
    heads = "".join(f'<th scope="col"{_numeric(c.numeric, c.title)}>{escape(c.title)}</th>' for c in table.columns)
    away = [row[-1] for row in table.values()]
    largest = max((abs(each) for each in away if each is not None), default=0.0) or 1.0
    rows = "".join(_paper_row(texts, each, largest) for texts, each in zip(table.texts(), away))
    title = mean_last_title(measure, last_means([run for g in named for run in g.runs], measure))
    said = f"{title[0].upper()}{title[1:]}, and what the paper printed for it"
    return filled((WEB / "paper.html").read_text(), {"said": escape(said), "heads": heads, "rows": rows})


def _paper_row(texts: Sequence[str], away: float | None, largest: float) -> str:
    name, *numbers = map(escape, texts)
    cells = "".join(f'<td class="number">{text}</td>' for text in numbers)
    side = "ahead" if (away or 0) >= 0 else "behind"
    bar = f'<span class="away {side}" style="--part: {abs(away or 0) / largest:.3f}"></span>'
    return f'<tr><th scope="row">{name}</th>{cells}<td class="bars" aria-hidden="true">{bar}</td></tr>'


def _config(place: int, run: Run, target: Path) -> str:
    """A run's settings and where they came from, readable without the folder; the link works while that is there."""
    link = Path(os.path.relpath((run.path / CONFIG).resolve(), target.resolve().parent)).as_posix()
    command = run.origin.get("command")
    seed = run.config.get("seed", 0)
    return filled(
        (WEB / "config.html").read_text(),
        {
            "place": str(place),
            "name": escape(run.name),
            "state": escape(f"seed {seed}, {status(run)}"),
            "command": f"<p>made by <code>{escape(str(command))}</code></p>" if command else "",
            "link": escape(quote(link)),
            "link_text": escape(link),
            "text": escape((run.path / CONFIG).read_text()),
        },
    )
