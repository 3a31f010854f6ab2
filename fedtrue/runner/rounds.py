"""The round loop."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from fedtrue.engine.planning import ROUNDS_PER_DISPATCH
from fedtrue.engine.simulation import Simulation, SimulationState
from fedtrue.runner import checkpoint
from fedtrue.runner.callbacks.calls import Calls
from fedtrue.runner.evaluation import Evaluator
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Journal, Result, is_skipped, newest_checkpoints
from fedtrue.runner.records import Line
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.types import Params

SECONDS_PER_DISPATCH = 2.0  # long enough to hide the host's overhead, short enough for a live progress bar

LogLine = Callable[[str], None]  # called with one line for the user


def run_rounds(
    simulation: Simulation,
    journals: Sequence[Journal],
    schedule: HostSchedule,
    stop: Stop,
    after: Callable[[int], None],
    log: LogLine,
    *,
    calls: Sequence[Calls] | None = None,
    start: Params | None = None,
) -> list[Result]:
    """Trains every cell of the simulation (one, without a grid), from the last checkpoint to the last round.

    Args:
        simulation: trains the rounds.
        journals: the records of the cells, one per cell.
        schedule: when to evaluate and to save.
        stop: whether a signal has arrived.
        after: called after every dispatch with the number of rounds done.
        log: called with lines for the user.
        calls: the callbacks of the cells, one entry per cell.
        start: the weights before round 0, if they are not the task's own.
    """
    calls = calls or [Calls() for _ in journals]
    evaluator = Evaluator(simulation.task, cells=simulation.grid is not None)
    state, dispatch = _begin(simulation, journals, log, start), 1
    asked = [own.rounds_per_dispatch for own in calls]
    longest = min([simulation.rounds_per_dispatch, *(most for most in asked if most is not None)])
    results: dict[int, Result] = {}  # of the cells that have ended
    with ExitStack() as open_calls:
        for own, journal in zip(calls, journals):
            open_calls.callback(own.close)
            own.start(simulation.task, journal, schedule.rounds)
        while (done := state.round) < schedule.rounds and not all(journal.ended for journal in journals):
            began = time.perf_counter()
            count = min(dispatch, schedule.next(done) - done, longest)
            state, info = simulation.run(state, count)
            done, seconds = state.round, time.perf_counter() - began
            dispatch = _next_dispatch(count, seconds)
            evaluate = schedule.evaluation_due(done)
            evaluations = evaluator.of_splits(state.server.params) if evaluate else [{}] * len(journals)
            cells = zip(journals, simulation.each_cell(info), evaluations)
            lines = [journal.record(cell, seconds / len(journals), evaluation) for journal, cell, evaluation in cells]
            _warn_about_skipped_rounds(lines)
            training = {i: journal for i, journal in enumerate(journals) if i not in results}
            try:
                after(done)
                stopped = _call_back(calls, training, lines, done, schedule.rounds)
            except Exception:
                _save(simulation, state, training)
                raise
            if schedule.checkpoint_due(done) or stop.signal or stopped:
                _save(simulation, state, training)
            results |= _ended(simulation, state, journals, calls, stopped)
            if stop.signal:
                raise Stopped(stop.signal, done, journals[0].folder)
        finished = [i for i in range(len(journals)) if i not in results]
        results |= _ended(simulation, state, journals, calls, finished)
    return [results[i] for i in range(len(journals))]


def _call_back(
    calls: Sequence[Calls], training: Mapping[int, Journal], lines: Sequence[Sequence[Line]], done: int, rounds: int
) -> list[int]:
    """Shows the rounds of a dispatch to the callbacks; the cells that must stop, which none is after the last round."""
    reasons = {i: calls[i].rounds(lines[i], rounds) for i in training}
    for i, journal in training.items():
        journal.stopped = reasons[i] if done < rounds else None
    return [i for i, journal in training.items() if journal.stopped is not None]


def _save(simulation: Simulation, state: SimulationState, training: Mapping[int, Journal]) -> None:
    """A checkpoint of every cell that is still training; all have seen the same clients."""
    seen = next(journal.seen for journal in training.values())
    cells = simulation.each_cell(simulation.on_host(state, seen))
    for i, journal in training.items():
        journal.save(cells[i])


def _ended(
    simulation: Simulation,
    state: SimulationState,
    journals: Sequence[Journal],
    calls: Sequence[Calls],
    ending: Sequence[int],
) -> dict[int, Result]:
    """The results of the cells that end now, once their callbacks have seen them."""
    if not ending:
        return {}
    cells = simulation.each_cell(simulation.on_host(state._replace(memory=()), np.zeros(0, int)))
    results = {i: journals[i].close(cells[i]) for i in ending}
    for i, result in results.items():
        calls[i].end(result)
    return results


def _begin(
    simulation: Simulation, journals: Sequence[Journal], log: LogLine, weights: Params | None
) -> SimulationState:
    """The state to start from, at a round that all journals have reached."""
    saved = newest_checkpoints(journals, log)
    start = simulation.start(None if saved else weights)
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


def _warn_about_skipped_rounds(lines_of_cells: Sequence[Sequence[Line]]) -> None:
    """Rounds in which no client had a finite update."""
    for lines in lines_of_cells:
        if skipped := [line["round"] for line in lines if is_skipped(line)]:
            warnings.warn(
                f"round {skipped[0]}: every client's update was not finite, the round is skipped"
                f" ({len(skipped)} such rounds of the last {len(lines)}); try a smaller client learning rate",
                stacklevel=3,
            )
