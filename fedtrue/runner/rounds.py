"""The round loop."""

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

SECONDS_PER_DISPATCH = 2.0  # long enough to hide the host's overhead, short enough for a live progress bar

LogLine = Callable[[str], None]  # called with one line for the user


def run_rounds(
    simulation: Simulation,
    journals: Sequence[Journal],
    schedule: HostSchedule,
    stop: Stop,
    after: Callable[[int], None],
    log: LogLine,
) -> list[Result]:
    """Trains every cell of the simulation (one, without a grid), from the last checkpoint to the last round.

    Args:
        simulation: trains the rounds.
        journals: the records of the cells, one per cell.
        schedule: when to evaluate and to save.
        stop: whether a signal has arrived.
        after: called after every dispatch with the number of rounds done.
        log: called with lines for the user.
    """
    evaluator = Evaluator(simulation.task, cells=simulation.grid is not None)
    state, dispatch = _begin(simulation, journals, log), 1
    while (done := state.round) < schedule.rounds and not all(journal.diverged for journal in journals):
        began = time.perf_counter()
        count = min(dispatch, schedule.next(done) - done, simulation.rounds_per_dispatch)
        state, info = simulation.run(state, count)
        done, seconds = state.round, time.perf_counter() - began
        dispatch = _next_dispatch(count, seconds)
        evaluate = schedule.evaluation_due(done)
        evaluations = evaluator.of_splits(state.server.params) if evaluate else [{}] * len(journals)
        for journal, cell, evaluation in zip(journals, simulation.each_cell(info), evaluations):
            _warn_about_skipped_rounds(journal.record(cell, seconds / len(journals), evaluation))
        after(done)
        if schedule.checkpoint_due(done) or stop.signal:
            to_save = simulation.on_host(state, journals[0].seen)
            for journal, cell in zip(journals, simulation.each_cell(to_save)):
                journal.save(cell)
        if stop.signal:
            raise Stopped(stop.signal, done, journals[0].folder)
    ended = simulation.each_cell(simulation.on_host(state._replace(memory=()), np.zeros(0, int)))
    return [journal.close(cell) for journal, cell in zip(journals, ended)]


def _begin(simulation: Simulation, journals: Sequence[Journal], log: LogLine) -> SimulationState:
    """The state to start from, at a round that all journals have reached."""
    saved, start = newest_checkpoints(journals, log), simulation.start()
    if not saved:
        for journal in journals:
            journal.open(None)
        return start
    for entry in saved:
        checkpoint.check_clients(entry, len(simulation.task.train))
    clients = saved[0].clients
    cells = zip(journals, saved, simulation.each_cell(simulation.on_host(start, clients)))
    states = [journal.restored(entry, cell) for journal, entry, cell in cells]
    for journal, entry in zip(journals, saved):  # only now: opening removes lines, and all checkpoints are valid
        journal.open(entry)
    return simulation.resumed(start, states, clients, saved[0].round)


def _next_dispatch(rounds: int, seconds: float) -> int:
    """As many rounds as fit into the target time, at most eight times as many; the first dispatch compiles too."""
    return int(np.clip(rounds * SECONDS_PER_DISPATCH / max(seconds, 1e-6), 1, min(8 * rounds, ROUNDS_PER_DISPATCH)))


def _warn_about_skipped_rounds(lines: Sequence[Line]) -> None:
    """Rounds in which no client had a finite update."""
    skipped = [line["round"] for line in lines if not line["clients"]]
    if skipped:
        warnings.warn(
            f"round {skipped[0]}: every client's update was not finite, the round is skipped"
            f" ({len(skipped)} such rounds of the last {len(lines)}); try a smaller client learning rate",
            stacklevel=3,
        )
