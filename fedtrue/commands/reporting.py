"""`fedtrue report`, `fedtrue table`, `fedtrue pack`."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedtrue.commands.answer import Answer, printed
from fedtrue.names import look_up
from fedtrue.report import heat_map, pictures
from fedtrue.report.heat_table import heat_markdown, heat_records
from fedtrue.report.labels import group
from fedtrue.report.measures import Measure, chosen_measure
from fedtrue.report.page import counted, page
from fedtrue.report.table_formats import FORMATS, as_records
from fedtrue.report.tables import bytes_text, table_of
from fedtrue.report.targets import check_target
from fedtrue.runner import packing
from fedtrue.runner.records import Run, find_runs, read_run


def report(options: Namespace) -> Answer:
    """One HTML file of all the runs, and pictures where asked for."""
    known = {kind: kind for kind in pictures.FORMATS}
    formats = [look_up("picture format", known, kind) for kind in _list(options.formats)]
    runs = _runs(options.runs)
    measure = chosen_measure(runs, options.metric)
    check_target(options.threshold, measure, "--threshold")
    limits = _limits(options.limits, measure)
    target: Path = options.out
    text = page(runs, target, name=options.title, metric=measure.key, threshold=options.threshold)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    drawn: list[Path] = []
    if options.pictures is not None:
        drawn = pictures.draw_pictures(runs, options.pictures, formats, measure.key, options.threshold, limits)
    size = target.stat().st_size
    heat, limit = _panels(runs, measure, options.threshold)
    cells = [heat_map.count_record(panel, measure, limit) for panel in heat]
    answer = {
        "report": str(target),
        "bytes": size,
        "runs": len(runs),
        "metric": measure.key,
        "heat_maps": cells,
        "pictures": [str(path) for path in drawn],
    }
    said = [
        f"report: {target} ({bytes_text(size)}, {counted(len(runs), 'run')})",
        *(f"heat map: {each['panel']}: {each['text']}" for each in cells),
        *(f"picture: {path}" for path in drawn),
    ]
    return Answer(answer, lambda: _write("\n".join([*said, ""])))


def _limits(text: str | None, measure: Measure) -> tuple[float, float] | None:
    """`0.5,0.6`, the lower first."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = 0.0
    if not low < high:
        raise ValueError(f"--limits takes two numbers, the lower first, e.g. 0.5,0.6, not {text!r}")
    for limit in (low, high):
        check_target(limit, measure, "--limits")
    return low, high


def _panels(runs: Sequence[Run], measure: Measure, threshold: float | None) -> tuple[list[heat_map.Panel], float]:
    """The heat maps, and the threshold given or chosen for them; none where no cell has a value to compare."""
    heat = heat_map.panels(group(runs))
    limit = heat_map.chosen_threshold(heat, measure, threshold)
    return ([], 0.0) if limit is None else (heat, limit)


def table(options: Namespace) -> Answer:
    """The runs as a table for a document; the same records give the same bytes."""
    runs = _runs(options.runs)
    measure = chosen_measure(runs, options.metric)
    if options.heat_map:
        return _heat_table(options, runs, measure)
    if options.threshold is not None:
        raise ValueError("--threshold is for heat maps: add --heat-map, or give --target")
    check_target(options.target, measure, "--target")
    columns, winners = _list(options.columns), _list(options.winners)
    made = table_of(group(runs), measure.key, columns, options.sort, target=options.target, winners=winners)
    return _table_answer(as_records(made), FORMATS[options.format](made), options.out)


def _heat_table(options: Namespace, runs: Sequence[Run], measure: Measure) -> Answer:
    """The heat maps as Markdown or JSON."""
    for name in ("columns", "sort", "winners", "target"):
        if getattr(options, name) is not None:
            raise ValueError(f"--heat-map has rows and columns of its own: leave out --{name}")
    if options.format != "markdown":
        raise ValueError(f"--heat-map is written as Markdown or JSON, not as {options.format}: leave out --format")
    check_target(options.threshold, measure, "--threshold")
    heat, limit = _panels(runs, measure, options.threshold)
    if not heat:
        raise ValueError("--heat-map needs runs with two client rates and two server rates, of which one has a value")
    return _table_answer(heat_records(heat, measure, limit), heat_markdown(heat, measure, limit), options.out)


def _table_answer(rows: list[dict[str, Any]], text: str, out: Path | None) -> Answer:
    if out is None:
        return Answer(rows, lambda: _write(text))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return Answer(rows, printed(f"table: {out}"))


def pack(options: Namespace) -> Answer:
    """Archives of runs, one per sweep."""
    written = packing.pack(options.runs, options.out, options.allow_uncommitted)
    archives = [{**asdict(archive), "file": str(archive.file)} for archive in written]
    return Answer({"archives": archives, "bytes": sum(each.bytes for each in written)}, printed(*map(_packed, written)))


def _packed(archive: packing.Packed) -> str:
    marked = f", {archive.not_committed} of them from uncommitted or unknown code" if archive.not_committed else ""
    return f"{archive.file}: {counted(archive.runs, 'run')}{marked}, {bytes_text(archive.bytes)}"


def _write(text: str) -> None:
    """Without rich, which would wrap it and read square brackets in labels as its own."""
    sys.stdout.write(text)


def _runs(paths: Sequence[Path]) -> list[Run]:
    return [read_run(path) for path in find_runs(paths)]


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []
