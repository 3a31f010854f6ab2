"""`fedtrue report`, `fedtrue table`, `fedtrue pack`."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedtrue.commands.answer import Answer, printer
from fedtrue.names import look_up, suggestion
from fedtrue.reports import pictures
from fedtrue.reports.canvas import FORMATS as PICTURE_FORMATS
from fedtrue.reports.canvas import check_format
from fedtrue.reports.difference_picture import draw_differences
from fedtrue.reports.differences import matches, nothing_matches
from fedtrue.reports.heat_map import Panel, count_record, heat_map_panels, threshold_or_default
from fedtrue.reports.heat_table import heat_markdown, heat_records
from fedtrue.reports.labels import flatten_config, group_runs
from fedtrue.reports.measures import Measure, choose_measure
from fedtrue.reports.number_text import bytes_text, plural
from fedtrue.reports.table_formats import FORMATS, to_records
from fedtrue.reports.tables import build_table
from fedtrue.reports.targets import check_target
from fedtrue.reports.write import write_report
from fedtrue.runner import packing
from fedtrue.runner.records import Run, find_runs, read_run
from fedtrue.runner.settings import method_settings, run_settings


def report(options: Namespace) -> Answer:
    """One HTML file with all runs, and pictures if asked for."""
    valid_formats = {suffix: suffix for suffix in PICTURE_FORMATS}
    formats = [look_up("picture format", valid_formats, suffix) for suffix in _split_list(options.formats)]
    runs = _read_runs(options.runs)
    measure = choose_measure(runs, options.metric)
    check_target(options.threshold, measure, "--threshold")
    y_range = _parse_y_range(options.y_range, measure)
    target: Path = options.out
    write_report(runs, target, options.title, measure.key, options.threshold)
    files: list[Path] = []
    if options.pictures is not None:
        files = pictures.draw_pictures(runs, options.pictures, formats, measure.key, options.threshold, y_range)
    size = target.stat().st_size
    panels, threshold = _panels_and_threshold(runs, measure, options.threshold)
    counts = [count_record(panel, measure, threshold) for panel in panels]
    answer = {
        "report": str(target),
        "bytes": size,
        "runs": len(runs),
        "metric": measure.key,
        "heat_maps": counts,
        "pictures": [str(path) for path in files],
    }
    lines = [
        f"report: {target} ({bytes_text(size)}, {plural(len(runs), 'run')})",
        *(f"heat map: {count['panel']}: {count['text']}" for count in counts),
        *(f"picture: {path}" for path in files),
    ]
    return Answer(answer, lambda: _print_plain("\n".join([*lines, ""])))


def _parse_y_range(text: str | None, measure: Measure) -> tuple[float, float] | None:
    """The numbers of `0.5,0.6`."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = 0.0
    if not low < high:
        raise ValueError(f"--y-range takes two numbers, the lower one first, e.g. 0.5,0.6, not {text!r}")
    for limit in (low, high):
        check_target(limit, measure, "--y-range")
    return low, high


def _panels_and_threshold(runs: Sequence[Run], measure: Measure, threshold: float | None) -> tuple[list[Panel], float]:
    """The heat maps and their threshold, given or default; no heat maps if no cell has a value."""
    panels = heat_map_panels(group_runs(runs))
    limit = threshold_or_default(panels, measure, threshold)
    return ([], 0.0) if limit is None else (panels, limit)


def table(options: Namespace) -> Answer:
    """The runs as a table for a document; equal records give equal bytes."""
    check_format("--picture", options.picture)
    runs = _runs_with(_read_runs(options.runs), _parse_settings("--where", options.where))
    over, against = _split_list(options.over) or ["seed"], _parse_settings("--against", options.against)
    _check_keys("--over", over, runs)
    _check_keys("--against", against or (), runs)
    measure = choose_measure(runs, options.metric)
    if options.heat_map:
        return _heat_table(options, runs, measure)
    if options.threshold is not None:
        raise ValueError("--threshold is for heat maps: add --heat-map, or give --target")
    check_target(options.target, measure, "--target")
    columns, best_per = _split_list(options.columns), _split_list(options.best_per)
    if options.ranked and not best_per:
        raise ValueError("--ranked is for --best-per: --sort alone puts the best row first")
    runs_table = build_table(
        group_runs(runs, over),
        measure.key,
        columns,
        options.sort,
        target=options.target,
        best_per=best_per,
        ranked=options.ranked,
        against=against,
    )
    if options.picture is not None:
        draw_differences(runs_table, options.picture)
    return _table_answer(to_records(runs_table), FORMATS[options.format](runs_table), options.out)


def _runs_with(runs: Sequence[Run], settings: Mapping[str, str] | None) -> Sequence[Run]:
    """The runs with these settings."""
    wanted = settings or {}
    _check_keys("--where", wanted, runs)
    has_all = lambda run: all(matches(flatten_config(run.config).get(key), wanted[key]) for key in wanted)
    chosen = [run for run in runs if has_all(run)]
    if not chosen:
        raise nothing_matches("no run", wanted, [flatten_config(run.config) for run in runs])
    return chosen


def _check_keys(flag: str, keys: Iterable[str], runs: Sequence[Run]) -> None:
    """Refuses a setting that no run can have; one that these runs lack, such as an option of another part, is none."""
    known = dict.fromkeys(["seed", *(key for run in runs for key in flatten_config(run.config))])
    valid = [*known, *(name for name in run_settings() if name not in known)]
    for key in keys:
        first, _, option = key.partition(".")
        if key not in valid and not (option and first in ("task_options", *method_settings())):
            raise ValueError(f"{flag}: {key!r} is not a setting of these runs{suggestion(key, valid)}")


def _parse_settings(flag: str, text: str | None) -> dict[str, str] | None:
    """The settings of `client.name=sgd,correction=none`."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in _split_list(text) or []]
    if not pairs or not all(key and equals and value for key, equals, value in pairs):
        raise ValueError(f"{flag} takes settings, e.g. correction=none, not {text!r}")
    return {key: value for key, _, value in pairs}


def _heat_table(options: Namespace, runs: Sequence[Run], measure: Measure) -> Answer:
    """The heat maps as Markdown or JSON."""
    for name in ("columns", "sort", "best_per", "target", "against", "over", "picture"):
        if getattr(options, name) is not None:
            raise ValueError(f"--heat-map has its own rows and columns: leave out --{name.replace('_', '-')}")
    if options.format != "markdown":
        raise ValueError(f"--heat-map is written as Markdown or JSON, not as {options.format}: leave out --format")
    check_target(options.threshold, measure, "--threshold")
    panels, threshold = _panels_and_threshold(runs, measure, options.threshold)
    if not panels:
        raise ValueError(
            "--heat-map needs runs with two client rates and two server rates, at least one of them with a value"
        )
    text = heat_markdown(panels, measure, threshold)
    return _table_answer(heat_records(panels, measure, threshold), text, options.out)


def _table_answer(records: list[dict[str, Any]], text: str, out: Path | None) -> Answer:
    if out is None:
        return Answer(records, lambda: _print_plain(text))
    _write_file(out, text)
    return Answer(records, printer(f"table: {out}"))


def pack(options: Namespace) -> Answer:
    """Archives of runs, one per sweep."""
    packed = packing.pack(
        options.runs, options.out, options.allow_uncommitted, options.only_ended, options.only_evaluations
    )
    archives = [{**asdict(archive), "file": str(archive.file)} for archive in packed]
    total = sum(archive.bytes for archive in packed)
    return Answer({"archives": archives, "bytes": total}, printer(*map(_archive_line, packed)))


def _archive_line(archive: packing.Packed) -> str:
    marked = f", {archive.not_committed} of them from uncommitted or unknown code" if archive.not_committed else ""
    return f"{archive.file}: {plural(archive.runs, 'run')}{marked}, {bytes_text(archive.bytes)}"


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _print_plain(text: str) -> None:
    """Prints without rich, which would wrap lines and interpret square brackets in labels."""
    sys.stdout.write(text)


def _read_runs(paths: Sequence[Path]) -> list[Run]:
    return [read_run(path) for path in find_runs(paths)]


def _split_list(text: str | None) -> list[str]:
    """['a', 'b'] for 'a, b'."""
    return [entry.strip() for entry in text.split(",") if entry.strip()] if text else []
