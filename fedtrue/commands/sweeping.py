"""`fedtrue sweep`."""

import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, printer
from fedtrue.commands.outcomes import Summary, cells_table, exploded_lines, measures_of, rank_cells
from fedtrue.commands.training import stderr_printer
from fedtrue.engine.devices import use_all_cores_unless_set
from fedtrue.runner.callbacks.interface import train_metrics
from fedtrue.runner.progress import metrics_text
from fedtrue.runner.records import CONFIG, Line, read_summary
from fedtrue.runner.stop import Stop
from fedtrue.runner.summary import flat, read_outcome
from fedtrue.runner.sweep.cells import Cell
from fedtrue.runner.sweep.run import prepare, run_groups

MAX_LIVE_ROWS = 40  # a longer table would not fit on the screen
UNFINISHED: Summary = {"status": "unfinished", "rounds": 0}


def sweep(options: Namespace) -> Answer:
    use_all_cores_unless_set()
    out = options.out or Path("runs") / options.file.stem
    return run_sweep(options.file, out, options)


def run_sweep(file: Path, out: Path, options: Namespace) -> Answer:
    """Trains the cells that have not finished, and returns all of them."""
    say = stderr_printer(options.json)
    if options.at_once is not None:
        check_int("--at-once", options.at_once, low=1)
    cells, groups = prepare(file, out, options.cells)
    live = LiveCells(cells, out)
    with Stop() as stop, live if not options.json else nullcontext():
        if options.on == "ray":
            from fedtrue.runner.sweep.ray_cluster import run_on_ray

            run_on_ray(groups, out, options.at_once, options.address, stop, live.finished, say)
        else:
            run_groups(groups, out, options.at_once, stop, live.watch, say)
    summaries = {cell.name: read_outcome(out / cell.name) or UNFINISHED for cell in cells}
    folder = shlex.quote(str(out))
    return Answer(
        _cell_records(summaries),
        printer(
            cells_table(f"{len(cells)} cells in {out}", summaries),
            *exploded_lines(summaries),
            f"repeat one cell alone: fedtrue run {folder}/CELL/{CONFIG}",
            f"compare all cells: fedtrue report {folder} -o report.html",
        ),
    )


def _cell_records(summaries: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """The cells for `--json`, best first; metrics have the same names as in tables."""
    measures = measures_of([summary for summary in summaries.values() if "final" in summary])
    names = rank_cells(summaries, measures[0]) if measures else list(summaries)
    return [
        {
            "cell": name,
            "status": summaries[name]["status"],
            "rounds": summaries[name]["rounds"],
            **flat(summaries[name]),
            **{key: value for key, value in summaries[name].items() if key == "exploded"},
        }
        for name in names
    ]


class LiveCells:
    """A table of the cells that is updated during training; hidden if stderr is not a terminal."""

    def __init__(self, cells: Sequence[Cell], out: Path):
        self.cells, self.out = cells, out
        self.rows = {cell.name: ("waiting", "", "") for cell in cells}  # status, round, metrics
        for cell in cells:
            self.finished(cell.name)
        console = Console(stderr=True)
        self.live = (
            Live(console=console, get_renderable=self._table, refresh_per_second=2) if console.is_terminal else None
        )

    def __enter__(self) -> "LiveCells":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.live:
            self.live.stop()

    def watch(self, name: str, lines: Sequence[Line]) -> None:
        """Called with the records of a cell after each dispatch."""
        self.rows[name] = ("training", str(len(lines)), metrics_text(train_metrics(lines[-1])))

    def finished(self, name: str) -> None:
        """Updates the row of a cell if it has finished."""
        if summary := read_summary(self.out / name):
            self.rows[name] = (summary["status"], str(summary["rounds"]), "")

    def _table(self) -> Table:
        """Cells in training first."""
        for name, (status, _, _) in list(self.rows.items()):
            if status == "training":
                self.finished(name)
        done = sum(status not in ("waiting", "training") for status, _, _ in self.rows.values())
        result = Table(title=f"{done} of {len(self.cells)} cells done", title_justify="left")
        for column in ("cell", "status", "round", "metrics of the cohort"):
            result.add_column(column)
        training_first = sorted(self.rows.items(), key=lambda row: row[1][0] != "training")
        for name, entries in training_first[:MAX_LIVE_ROWS]:
            result.add_row(name, *entries)
        if len(training_first) > MAX_LIVE_ROWS:
            result.add_row("…", f"{len(training_first) - MAX_LIVE_ROWS} more", "", "")
        return result
