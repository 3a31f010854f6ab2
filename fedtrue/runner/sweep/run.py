"""Running a sweep: cells that have ended are skipped, the others trained group by group."""

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
from fedtrue.runner.rounds import Say
from fedtrue.runner.settings import RunConfig
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.runner.sweep.cells import Cell, read_sweep
from fedtrue.runner.sweep.grid import program_of
from fedtrue.runner.sweep.train_cells import Watch, train_cells
from fedtrue.tasks.task import Task

LOADED = (
    "task",
    "task_options",
    "precision",
    "local_epochs",
    "batch_size",
    "evaluation_limit",
)  # what a task is loaded with

Group = tuple[Task, list[Cell]]


def prepare(file: Path, out: Path, only: str = "*") -> tuple[list[Cell], list[Group]]:
    """A sweep's cells of that name, in groups where they have not ended; its file is kept in `out` if all is right."""
    cells, kept, text = [cell for cell in read_sweep(file) if fnmatch(cell.name, only)], out / SWEEP, file.read_bytes()
    if not cells:
        raise ValueError(f"no cell of {file} is called {only!r}: the first is called {read_sweep(file)[0].name!r}")
    if kept.exists() and kept.read_bytes() != text:
        raise ValueError(f"{out} holds another sweep: give another --out, or go on with `fedtrue resume {out}`")
    found = groups(cells, out)
    out.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        write_atomically(kept, text)
    return cells, found


def sweep(
    file: str | Path, out: str | Path | None = None, *, cells: str = "*", at_once: int | None = None
) -> list[LoadedRun]:
    """Train all cells of a sweep file; those that have ended are left alone, the others go on.

    Args:
        file: the sweep's TOML file.
        out: where the cells' run folders go; without it, runs/NAME.
        cells: only those whose names match, e.g. "*seed=0".
        at_once: cells in one program; without it, as many as fit.

    Returns:
        The runs, in the order of the cells.
    """
    path = Path(file)
    folder = Path(out) if out is not None else Path("runs") / path.stem
    chosen, found = prepare(path, folder, cells)
    run_groups(found, folder, at_once, Stop(), lambda name, lines: None, lambda line: None)
    return [load_run(folder / cell.name) for cell in chosen]


def run_groups(found: Sequence[Group], out: Path, at_once: int | None, stop: Stop, watch: Watch, say: Say) -> None:
    """Group after group, every cell to its end."""
    for task, group in found:
        try:
            train_cells(task, group, out, at_once, stop, watch, say)
        except Stopped as stopped:
            raise stopped.in_folder(out) from None


def groups(cells: Sequence[Cell], out: Path) -> list[Group]:
    """Cells that share a program and stand at the same round, their settings resolved."""
    tasks: dict[str, Task] = {}
    found: dict[Any, Group] = {}
    for cell in (cell for cell in cells if read_summary(out / cell.name) is None):
        task = _loaded(cell.config, tasks)
        config = resolved(cell.config, task)  # wrong numbers are refused before anything is trained
        reached = checkpoint.rounds_saved(out / cell.name / "checkpoints")[-1:]
        found.setdefault((program_of(config), *reached), (task, []))[1].append(Cell(cell.name, config))
    return list(found.values())


def _loaded(config: RunConfig, tasks: dict[str, Task]) -> Task:
    """Each task is loaded once."""
    key = repr([getattr(config, name) for name in LOADED])
    if key not in tasks:
        tasks[key] = load_task(config)
    return tasks[key]
