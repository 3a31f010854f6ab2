"""The round loop, on one screen."""

import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from fedtrue.engine.planning import ROUNDS_PER_DISPATCH
from fedtrue.engine.simulation import Simulation, SimulationState
from fedtrue.runner import checkpoint
from fedtrue.runner.evaluation import Evaluator
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Journal, Result, newest_checkpoints
from fedtrue.runner.records import Line
from fedtrue.runner.stop import Stop, Stopped

SECONDS_PER_DISPATCH = 2.0  # long enough to hide the host, short enough for a live progress bar

Say = Callable[[str], None]


def run_rounds(
    simulation: Simulation,
    journals: Sequence[Journal],
    schedule: HostSchedule,
    stop: Stop,
    after: Callable[[int], None],
    say: Say,
) -> list[Result]:
    """Every cell of the simulation (one, without a grid), from where its journal stands to the last round."""
    evaluator = Evaluator(simulation.task, cells=simulation.grid is not None)
    state, dispatch = _begin(simulation, journals, say), 1
    while (done := state.round) < schedule.rounds and not all(journal.given_up for journal in journals):
        began = time.perf_counter()
        count = min(dispatch, schedule.next(done) - done, simulation.rounds_per_dispatch)
        state, info = simulation.run(state, count)
        done, seconds = state.round, time.perf_counter() - began
        dispatch = _next_dispatch(count, seconds)
        due = schedule.evaluation_due(done)
        evaluations = evaluator.of_splits(state.server.params) if due else [{}] * len(journals)
        for journal, cell, evaluation in zip(journals, simulation.each_cell(info), evaluations):
            _warn_of_skipped(journal.record(cell, seconds / len(journals), evaluation))
        after(done)
        if schedule.checkpoint_due(done) or stop.signal:
            to_save = simulation.on_host(state, journals[0].seen)
            for journal, cell in zip(journals, simulation.each_cell(to_save)):
                journal.save(cell)
        if stop.signal:
            raise Stopped(stop.signal, done, journals[0].folder)
    ended = simulation.each_cell(simulation.on_host(state._replace(memory=()), np.zeros(0, int)))
    return [journal.close(cell) for journal, cell in zip(journals, ended)]


def _begin(simulation: Simulation, journals: Sequence[Journal], say: Say) -> SimulationState:
    """The state that the journals have reached; all of them the same round."""
    found, start = newest_checkpoints(journals, say), simulation.start()
    if not found:
        for journal in journals:
            journal.open(None)
        return start
    for entry in found:
        checkpoint.check_clients(entry, len(simulation.task.train))
    clients = found[0].clients
    cells = zip(journals, found, simulation.each_cell(simulation.on_host(start, clients)))
    states = [journal.restored(entry, cell) for journal, entry, cell in cells]
    for journal, entry in zip(journals, found):  # nothing is cut off before it is known that all fits
        journal.open(entry)
    return simulation.resumed(start, states, clients, found[0].round)


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
