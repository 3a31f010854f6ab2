"""`fedtrue sweep`."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, printed
from fedtrue.commands.outcomes import Summary, best_first, compared_table, measures_of
from fedtrue.commands.training import speaker
from fedtrue.runner.records import Line, read_summary
from fedtrue.runner.stop import Stop
from fedtrue.runner.summary import flat, read_outcome
from fedtrue.runner.sweep.cells import Cell
from fedtrue.runner.sweep.run import prepare, run_groups
from fedtrue.runner.train import train_metrics

ROWS = 40  # of the live table; a longer one would leave the screen


def sweep(options: Namespace) -> Answer:
    out = options.out or Path("runs") / options.file.stem
    return run(options.file, out, options)


def run(file: Path, out: Path, options: Namespace) -> Answer:
    say = speaker(options.json)
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
    unfinished = {"status": "unfinished", "rounds": 0}
    outcomes = {cell.name: read_outcome(out / cell.name) or unfinished for cell in cells}
    shown = compared_table(f"{len(cells)} cells in {out}", outcomes)
    return Answer(_rows(outcomes), printed(shown, f"look at them: fedtrue report {out} -o report.html"))


def _rows(outcomes: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """The cells, the best first; metrics under the names that tables use."""
    measures = measures_of([summary for summary in outcomes.values() if "final" in summary])
    names = best_first(outcomes, measures[0]) if measures else list(outcomes)
    return [
        {"cell": name, "status": outcomes[name]["status"], "rounds": outcomes[name]["rounds"], **flat(outcomes[name])}
        for name in names
    ]


class LiveCells:
    """A table of cells that changes while they train; silent when not a terminal."""

    def __init__(self, cells: Sequence[Cell], out: Path):
        self.cells, self.out = cells, out
        self.state = {cell.name: ("waiting", "", "") for cell in cells}
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
        latest = "  ".join(f"{metric} {value:.4g}" for metric, value in train_metrics(lines[-1]).items())
        self.state[name] = ("training", str(len(lines)), latest)

    def finished(self, name: str) -> None:
        if summary := read_summary(self.out / name):
            self.state[name] = (summary["status"], str(summary["rounds"]), "")

    def _table(self) -> Table:
        """Those at work first."""
        for name, (status, _, _) in list(self.state.items()):
            if status == "training":
                self.finished(name)
        ended = sum(status not in ("waiting", "training") for status, _, _ in self.state.values())
        result = Table(title=f"{ended} of {len(self.cells)} cells have ended", title_justify="left")
        for column in ("cell", "status", "round", "on its cohort"):
            result.add_column(column)
        by_work = sorted(self.state.items(), key=lambda entry: entry[1][0] != "training")
        for name, entries in by_work[:ROWS]:
            result.add_row(name, *entries)
        if len(by_work) > ROWS:
            result.add_row("…", f"{len(by_work) - ROWS} more", "", "")
        return result
