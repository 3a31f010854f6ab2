"""Trains cells of a sweep together, in one program. Each cell has an ordinary run folder."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedtrue.algorithm.upload import privacy_of
from fedtrue.engine.capacity import cells_at_once, message_bytes
from fedtrue.engine.round import State
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner.build import simulation_arguments
from fedtrue.runner.checkpoint import Checkpoint
from fedtrue.runner.folder import RunLock
from fedtrue.runner.journal import Journal, Result
from fedtrue.runner.records import Line
from fedtrue.runner.rounds import LogLine, run_rounds
from fedtrue.runner.settings import RunConfig
from fedtrue.runner.stop import Stop
from fedtrue.runner.sweep.cells import Cell
from fedtrue.runner.sweep.check import calls_of, schedule_of
from fedtrue.runner.sweep.grid import grid_of
from fedtrue.runner.train import Files, open_folder
from fedtrue.runner.warm_start import starting_weights
from fedtrue.spec import from_spec
from fedtrue.tasks.task import Task
from fedtrue.types import Params

CellProgress = Callable[[str, Sequence[Line]], None]  # (name of the cell, its lines so far)


class LastProgram:
    """The simulation of the group before, which trains the next group too if that differs in its seed only."""

    def __init__(self) -> None:
        self._kept: tuple[Task, list[RunConfig], Simulation] | None = None

    def take(self, task: Task, cells: Sequence[Cell]) -> Simulation | None:
        """With the seed of these cells; None if they need a program of their own, and the last one is let go."""
        kept, self._kept = self._kept, None
        if kept is None or kept[0] is not task or kept[1] != _but_for_the_seed(cells):
            return None
        simulation = kept[2]
        simulation.seed = cells[0].config.seed
        return simulation

    def keep(self, task: Task, cells: Sequence[Cell], simulation: Simulation) -> None:
        """For the group after these cells."""
        if simulation.availability is None:  # the seed decides how fast the clients are
            self._kept = task, _but_for_the_seed(cells), simulation


def _but_for_the_seed(cells: Sequence[Cell]) -> list[RunConfig]:
    return [replace(cell.config, seed=0, label=None, reference=None) for cell in cells]


class CellJournal(Journal):
    """The journal of a cell. The group's state has all server optimizers; a cell's checkpoint has only its own."""

    option: int | None = None  # index of the cell's server optimizer; None if all cells have the same

    def save(self, state: State) -> None:
        super().save(self._state_of_cell(state))

    def restored(self, saved: Checkpoint, like: State) -> State:
        cell_state = super().restored(saved, self._state_of_cell(like))
        if self.option is None:
            return cell_state
        optimizers = list(like.server.optimizer)
        optimizers[self.option] = cell_state.server.optimizer
        return cell_state._replace(server=cell_state.server._replace(optimizer=tuple(optimizers)))

    def _state_of_cell(self, state: State) -> State:
        if self.option is None:
            return state
        return state._replace(server=state.server._replace(optimizer=state.server.optimizer[self.option]))


def train_cells(
    task: Task,
    cells: Sequence[Cell],
    out: Path,
    at_once: int | None,
    stop: Stop,
    on_progress: CellProgress,
    log: LogLine,
    last: LastProgram,
) -> list[Result]:
    """Trains cells that share a program, all at once or in chunks, from their last checkpoints to the last round."""
    with float64(task.float64), ExitStack() as locks:
        first, grid = cells[0].config, grid_of([cell.config for cell in cells])
        calls = [calls_of(task, cell, out) for cell in cells]
        weights = starting_weights(first.start, task) if first.start is not None else None
        journals = [_journal(task, cell, out, option, locks, weights) for cell, option in zip(cells, grid.server)]
        fitting = lambda: cells_at_once(task, grid.method_of(_rows(grid.values, 0)), first.cohort)
        chunk_size = min(at_once or fitting(), len(cells))
        results, simulation, begin = list[Result](), last.take(task, cells), 0
        while begin < len(cells):
            chunk = np.s_[begin : begin + chunk_size]
            values = _rows(grid.values, chunk)
            try:
                if simulation is None or simulation.cells != len(cells[chunk]):
                    simulation = Simulation(task, grid.method_of, grid=values, **simulation_arguments(first, task))
                    log(f"{simulation.cells} of {len(cells)} cells at once; lanes: {simulation.lanes}")
                simulation.grid = values  # as many cells as before: no new compilation
                after = _after(cells[chunk], journals[chunk], on_progress)
                own = {"calls": calls[chunk], "start": weights}
                results += run_rounds(simulation, journals[chunk], schedule_of(first), stop, after, log, **own)
                begin += chunk_size
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or chunk_size == 1:
                    raise
                chunk_size, simulation = chunk_size // 2, None
                log(f"out of memory: continuing with {chunk_size} cells at once")
        if simulation is not None:
            last.keep(task, cells, simulation)
        return results


def _journal(
    task: Task, cell: Cell, out: Path, option: int | None, locks: ExitStack, weights: Params | None
) -> CellJournal:
    """The cell's journal; its folder is created if it does not exist, and locked until `locks` closes."""
    path = out / cell.name
    locks.enter_context(RunLock(path))
    open_folder(Files(path, True, cell.config.settings()), task, weights)
    method = from_spec(cell.config.method)
    message = message_bytes(task, method)
    spent = privacy_of(method, len(task.train), cell.config.cohort or len(task.train))
    of_task = (task.metric_kinds, dict(cell.config.method), task.model_weights)
    journal = CellJournal(path, len(task.train), message, *of_task, spent)
    journal.option = option
    return journal


def _rows(values: Any, rows: Any) -> Any:
    return jax.tree.map(lambda column: column[rows], values)


def _after(cells: Sequence[Cell], journals: Sequence[Journal], on_progress: CellProgress) -> Callable[[int], None]:
    def after(done: int) -> None:
        for cell, journal in zip(cells, journals):
            on_progress(cell.name, journal.lines)

    return after
