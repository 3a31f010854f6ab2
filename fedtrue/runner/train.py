"""The round loop, on one screen."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedtrue.algorithm.method import Method
from fedtrue.engine.capacity import message_bytes
from fedtrue.engine.program import State
from fedtrue.engine.simulation import ROUNDS_PER_DISPATCH, Simulation
from fedtrue.precision import float64
from fedtrue.runner import checkpoint, folder
from fedtrue.runner.evaluation import Evaluator, Progress
from fedtrue.runner.journal import Journal, Result, newest_checkpoints
from fedtrue.runner.pauses import CHECKPOINT_EVERY, Pauses
from fedtrue.runner.records import NOT_METRICS, Line
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.tasks.task import Task

SECONDS_PER_DISPATCH = 2.0  # long enough to hide the host, short enough for a live progress bar

Say = Callable[[str], None]


def run_rounds(
    simulation: Simulation,
    journals: Sequence[Journal],
    pauses: Pauses,
    stop: Stop,
    after: Callable[[int], None],
    say: Say,
) -> list[Result]:
    """Every cell of the simulation (one, without a grid), from where its journal stands to the last round."""
    evaluator = Evaluator(simulation.task, cells=simulation.grid is not None)
    state, done = _begin(simulation, journals, say)
    dispatch = 1
    while done < pauses.rounds and not all(journal.given_up for journal in journals):
        began = time.perf_counter()
        count = min(dispatch, pauses.next(done) - done, simulation.rounds_per_dispatch)
        state, info = simulation.run(state, done, count)
        done, seconds = done + count, time.perf_counter() - began
        dispatch = _next_dispatch(count, seconds)
        evaluations = evaluator.of_splits(state.server.params) if pauses.evaluation_due(done) else [{}] * len(journals)
        for journal, cell, evaluation in zip(journals, simulation.each_cell(info), evaluations):
            _warn_of_skipped(journal.record(cell, seconds / len(journals), evaluation))
        after(done)
        if pauses.checkpoint_due(done) or stop.signal:
            for journal, cell in zip(journals, simulation.each_cell(_to_save(simulation, state, journals[0].seen))):
                journal.save(cell)
        if stop.signal:
            raise Stopped(stop.signal, done, journals[0].folder)
    ended = simulation.each_cell(_on_host(state._replace(memory=())))
    return [journal.close(cell) for journal, cell in zip(journals, ended)]


def train(
    task: Task,
    method: Method,
    *,
    rounds: int,
    cohort: int | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    seed: int = 0,
    lanes: int | None = None,
    evaluate_every: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | str = CHECKPOINT_EVERY,
    tensorboard: bool = False,
    settings: Mapping[str, Any] | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Result:
    """Train `task` by `method` for `rounds` rounds.

    `local_steps`: one number, or one a client; without it, the task's local epochs. `rate_multipliers`: γ_i, one a
    client, η_i = γ_i η. The task's validation and test data are evaluated every `evaluate_every` rounds and at the end.
    `out`: a folder for records and checkpoints, the latter every so many rounds or, as "60s", seconds; with `resume`
    the run there goes on, and ends as if it had never stopped. `settings`: what the folder's `config.toml` shall hold.
    `say` is told, before anything is compiled, how many clients train side by side and what memory that takes.
    The same seed gives the same weights, cohorts and batches, whatever the method.
    """
    pauses, say = Pauses(rounds, evaluate_every, checkpoint_every), say or (lambda line: None)
    path = Path(out) if out is not None else None
    own: dict[str, Any] = {"cohort": cohort, "local_steps": local_steps, "rate_multipliers": rate_multipliers}
    with float64(task.float64):
        simulation = Simulation(task, method, **own, seed=seed, lanes=lanes)
        with folder.RunLock(path) if path else nullcontext():
            if path and not (resume and folder.is_run_folder(path)):
                own_settings = folder.FROM_PYTHON | {"task": task.name, "rounds": rounds, "seed": seed}
                folder.make(path, settings or own_settings, task.metric_kinds)
            say(f"lanes: {simulation.lanes}")
            journal = Journal(path, len(task.train), message_bytes(method, task), tensorboard, task.metric_kinds)

            def after(done: int) -> None:
                if progress:
                    progress(done, rounds, train_metrics(journal.lines[-1]))

            return run_rounds(simulation, [journal], pauses, stop or Stop(), after, say)[0]


def train_metrics(line: Line) -> dict[str, float]:
    """What was measured on the cohort's own batches."""
    return {name: value for name, value in line.items() if name not in NOT_METRICS}


def _begin(simulation: Simulation, journals: Sequence[Journal], say: Say) -> tuple[State, int]:
    """The state and the round that the journals have reached; all of them the same round."""
    found, start = newest_checkpoints(journals, say), simulation.start()
    if not found:
        for journal in journals:
            journal.open(None)
        return start, 0
    cells = zip(journals, found, simulation.each_cell(_on_host(start)))
    states = [journal.restored(entry, cell) for journal, entry, cell in cells]
    for journal, entry in zip(journals, found):  # nothing is cut off before it is known that all fits
        journal.open(entry)
    return simulation.from_cells(states), found[0].round


def _to_save(simulation: Simulation, state: State, clients: np.ndarray) -> State:
    """On the host, of the memory only the rows of `clients`."""
    rows = checkpoint.rows_of(state.memory, clients, axis=0 if simulation.grid is None else 1)
    return _on_host(state._replace(memory=rows))


def _on_host(state: State) -> State:
    return jax.tree.map(np.asarray, state)


def _next_dispatch(rounds: int, seconds: float) -> int:
    """As many rounds as fit the wanted time, at most eight times as many: the first dispatch also compiled."""
    return int(np.clip(rounds * SECONDS_PER_DISPATCH / max(seconds, 1e-6), 1, min(8 * rounds, ROUNDS_PER_DISPATCH)))


def _warn_of_skipped(lines: Sequence[Line]) -> None:
    """Of rounds in which no client was left."""
    empty = [line["round"] for line in lines if not line["clients"]]
    if empty:
        warnings.warn(
            f"round {empty[0]}: every client's update was not finite, the round is skipped"
            f" ({len(empty)} such rounds of the last {len(lines)}); try a smaller client learning rate",
            stacklevel=3,
        )
