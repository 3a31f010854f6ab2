"""`fedtrue report`, `fedtrue table`."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtrue.commands.answer import Answer, printed
from fedtrue.names import look_up
from fedtrue.report import heat_map, pictures
from fedtrue.report.measures import chosen_measure
from fedtrue.report.page import counted, page
from fedtrue.report.settings import group
from fedtrue.report.table_formats import FORMATS, as_records
from fedtrue.report.tables import bytes_text, table_of
from fedtrue.runner import packing
from fedtrue.runner.records import SWEEP, Run, find_runs, read_run


def report(options: Namespace) -> Answer:
    """One HTML file of all the runs, and pictures where asked for."""
    known = {kind: kind for kind in pictures.FORMATS}
    formats = [look_up("picture format", known, kind) for kind in _list(options.formats)]
    runs = _runs(options.runs)
    measure = chosen_measure(runs, options.metric)
    heat_map.check_threshold(options.threshold, measure)
    target: Path = options.out
    text = page(runs, target, name=options.title, measure=measure, threshold=options.threshold)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    drawn: list[Path] = []
    if options.pictures is not None:
        drawn = pictures.draw_pictures(runs, options.pictures, formats, measure, options.threshold)
    size = target.stat().st_size
    cells = _cells(runs, measure, options.threshold)
    answer = {
        "report": str(target),
        "bytes": size,
        "runs": len(runs),
        "metric": measure,
        "heat_maps": cells,
        "pictures": [str(path) for path in drawn],
    }
    said = [
        f"report: {target} ({bytes_text(size)}, {counted(len(runs), 'run')})",
        *(f"heat map: {each['panel']}: {each['text']}" for each in cells),
        *(f"picture: {path}" for path in drawn),
    ]
    return Answer(answer, lambda: _write("\n".join([*said, ""])))


def _cells(runs: Sequence[Run], measure: str, threshold: float | None) -> list[dict[str, Any]]:
    """How many cells of each heat map reach the threshold."""
    heat = heat_map.panels(group(runs))
    limit = heat_map.default_threshold(heat, measure) if threshold is None else threshold
    if limit is None:
        return []
    return [
        {
            "panel": panel.title,
            "threshold": limit,
            "count": heat_map.count_beyond(panel, measure, limit),
            "cells": len(panel.cells),
            "text": heat_map.count_text(panel, measure, limit),
        }
        for panel in heat
    ]


def table(options: Namespace) -> Answer:
    """The runs as a table for a document; the same records give the same bytes."""
    made = table_of(group(_runs(options.runs)), options.metric, _list(options.columns), options.sort)
    text = FORMATS[options.format](made)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
        return Answer(as_records(made), printed(f"table: {options.out}"))
    return Answer(as_records(made), lambda: _write(text))


def pack(options: Namespace) -> Answer:
    """Small copies of run folders, below `options.out` under their own and their sweep's names."""
    packed = {}
    for path in find_runs(options.runs):
        parts = (path.parent.name, path.name) if (path.parent / SWEEP).exists() else (path.name,)
        packed[str(path)] = packing.pack(path, options.out.joinpath(*parts))
    total = sum(packed.values())
    said = f"{counted(len(packed), 'run')} in {options.out}, {bytes_text(total)}"
    return Answer({"out": str(options.out), "runs": packed, "bytes": total}, printed(said))


def _write(text: str) -> None:
    """Without rich, which would wrap it and read square brackets in labels as its own."""
    sys.stdout.write(text)


def _runs(paths: Sequence[Path]) -> list[Run]:
    return [read_run(path) for path in find_runs(paths)]


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []
