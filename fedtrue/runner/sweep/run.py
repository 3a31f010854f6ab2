"""Runs a sweep: cells that have ended are skipped, the others are trained group by group."""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from fedtrue.files import write_atomically
from fedtrue.runner import checkpoint
from fedtrue.runner.build import load_task
from fedtrue.runner.load import LoadedRun, load_run
from fedtrue.runner.records import SWEEP, read_summary
from fedtrue.runner.resolve import resolved
from fedtrue.runner.rounds import LogLine
from fedtrue.runner.settings import RunConfig
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.runner.sweep.cells import Cell, read_sweep
from fedtrue.runner.sweep.check import check_cell
from fedtrue.runner.sweep.grid import program_of
from fedtrue.runner.sweep.train_cells import CellProgress, LastProgram, train_cells
from fedtrue.tasks.task import Task

TASK_SETTINGS = (
    "task",
    "task_options",
    "precision",
    "local_epochs",
    "batch_size",
    "accumulate",
    "evaluation_limit",
    "holdout_clients",
)  # those that a task is loaded with

Group = tuple[Task, list[Cell]]


def prepare(file: Path, out: Path, only: str = "*") -> tuple[list[Cell], list[Group]]:
    """The cells whose names match `only`, and groups of those that have not ended; copies the sweep's file to `out`."""
    cells = [cell for cell in read_sweep(file) if fnmatch(cell.name, only)]
    copy, text = out / SWEEP, file.read_bytes()
    if not cells:
        raise ValueError(f"no cell of {file} is called {only!r}: the first is called {read_sweep(file)[0].name!r}")
    if copy.exists() and copy.read_bytes() != text:
        raise ValueError(f"{out} holds another sweep: give another out, or resume it with `fedtrue resume {out}`")
    cell_groups = groups(cells, out)  # checks all settings, so it comes before any file is written
    out.mkdir(parents=True, exist_ok=True)
    if not copy.exists():
        write_atomically(copy, text)
    return cells, cell_groups


def sweep(
    file: str | Path, out: str | Path | None = None, *, cells: str = "*", at_once: int | None = None
) -> list[LoadedRun]:
    """Train all cells of a sweep file; cells that have ended are skipped, interrupted ones are resumed.

    Args:
        file: the sweep's TOML file.
        out: the folder for the cells' run folders; without it, runs/NAME.
        cells: a pattern; only cells whose names match are trained, e.g. "*seed=0".
        at_once: how many cells to train in one program; without it, as many as fit into memory.

    Returns:
        The runs, in the order of the cells.
    """
    path = Path(file)
    folder = Path(out) if out is not None else Path("runs") / path.stem
    chosen, cell_groups = prepare(path, folder, cells)
    run_groups(cell_groups, folder, at_once, Stop(), lambda name, lines: None, lambda line: None)
    return [load_run(folder / cell.name) for cell in chosen]


def run_groups(
    cell_groups: Sequence[Group],
    out: Path,
    at_once: int | None,
    stop: Stop,
    on_progress: CellProgress,
    log: LogLine,
) -> None:
    """Trains the groups one after another."""
    last = LastProgram()
    for task, group in cell_groups:
        try:
            train_cells(task, group, out, at_once, stop, on_progress, log, last)
        except Stopped as stopped:
            raise stopped.in_folder(out) from None


def groups(cells: Sequence[Cell], out: Path) -> list[Group]:
    """Groups of cells that share a program and have reached the same round, with resolved settings.

    Settings that do not fit a task are refused.
    """
    tasks: dict[str, Task] = {}
    by_program: dict[Any, Group] = {}
    for cell in (cell for cell in cells if read_summary(out / cell.name) is None):
        task = _load_once(cell.config, tasks)
        config = resolved(cell.config, task)
        reached = checkpoint.rounds_saved(out / cell.name / "checkpoints")[-1:]
        program = (program_of(config), *reached)
        if program not in by_program:
            check_cell(task, Cell(cell.name, config), out)
        by_program.setdefault(program, (task, []))[1].append(Cell(cell.name, config))
    return list(by_program.values())


def _load_once(config: RunConfig, tasks: dict[str, Task]) -> Task:
    """The task of a config; each task is loaded once."""
    key = repr([getattr(config, name) for name in TASK_SETTINGS])
    if key not in tasks:
        tasks[key] = load_task(config)
    return tasks[key]
