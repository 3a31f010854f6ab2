"""Cells of a sweep that train together, in one program, each with a run folder like any other."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedtrue.engine.capacity import cells_at_once, message_bytes
from fedtrue.engine.round import State
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner.build import simulation_arguments
from fedtrue.runner.checkpoint import Checkpoint
from fedtrue.runner.folder import RunLock
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Journal, Result
from fedtrue.runner.records import Line
from fedtrue.runner.rounds import Say, run_rounds
from fedtrue.runner.stop import Stop
from fedtrue.runner.sweep.cells import Cell
from fedtrue.runner.sweep.grid import grid_of
from fedtrue.runner.train import Files, open_folder
from fedtrue.spec import from_spec
from fedtrue.tasks.task import Task

Watch = Callable[[str, Sequence[Line]], None]  # (cell's name, its lines so far)


class CellJournal(Journal):
    """Of the group's server state, which is that of all options, its checkpoints hold only the cell's own."""

    option: int | None = None  # which of the server optimizers; None if there is only one

    def save(self, state: State) -> None:
        super().save(self._own(state))

    def restored(self, found: Checkpoint, like: State) -> State:
        own = super().restored(found, self._own(like))
        if self.option is None:
            return own
        everyone = list(like.server.optimizer)
        everyone[self.option] = own.server.optimizer
        return own._replace(server=own.server._replace(optimizer=tuple(everyone)))

    def _own(self, state: State) -> State:
        if self.option is None:
            return state
        return state._replace(server=state.server._replace(optimizer=state.server.optimizer[self.option]))


def train_cells(
    task: Task, cells: Sequence[Cell], out: Path, at_once: int | None, stop: Stop, watch: Watch, say: Say
) -> list[Result]:
    """Cells that share a program, from where their folders stand to their last round: all at once, or in turn."""
    with float64(task.float64), ExitStack() as held:
        first, grid = cells[0].config, grid_of([cell.config for cell in cells])
        journals = [_journal(task, cell, out, option, held) for cell, option in zip(cells, grid.server)]
        fitting = lambda: cells_at_once(task, grid.method_of(_rows(grid.values, 0)), first.cohort)
        most = min(at_once or fitting(), len(cells))
        results, simulation, begin = list[Result](), None, 0
        while begin < len(cells):
            chunk = np.s_[begin : begin + most]
            values = _rows(grid.values, chunk)
            try:
                if simulation is None or simulation.cells != len(cells[chunk]):
                    simulation = Simulation(task, grid.method_of, grid=values, **simulation_arguments(first, task))
                    say(f"{simulation.cells} of {len(cells)} cells at once; lanes: {simulation.lanes}")
                simulation.grid = values  # of as many cells: no new compilation
                schedule = HostSchedule(first.rounds or 0, first.evaluate_every, first.checkpoint_every)
                after = _after(cells[chunk], journals[chunk], watch)
                results += run_rounds(simulation, journals[chunk], schedule, stop, after, say)
                begin += most
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or most == 1:
                    raise
                most, simulation = most // 2, None
                say(f"out of memory: going on with {most} cells at once")
        return results


def _journal(task: Task, cell: Cell, out: Path, option: int | None, held: ExitStack) -> CellJournal:
    """The cell's folder, made if it is not there, and held until `held` lets go."""
    path = out / cell.name
    held.enter_context(RunLock(path))
    open_folder(Files(path, True, cell.config.settings(), cell.config.tensorboard), task)
    message = message_bytes(task, from_spec(cell.config.method))
    journal = CellJournal(path, len(task.train), message, cell.config.tensorboard, task.metric_kinds)
    journal.option = option
    return journal


def _rows(values: Any, rows: Any) -> Any:
    return jax.tree.map(lambda column: column[rows], values)


def _after(cells: Sequence[Cell], journals: Sequence[Journal], watch: Watch) -> Callable[[int], None]:
    def after(done: int) -> None:
        for cell, journal in zip(cells, journals):
            watch(cell.name, journal.lines)

    return after
