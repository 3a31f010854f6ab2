"""`ft.rounds`: the user's own training loop."""

import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import jax

from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.upload import privacy_of
from fedtrue.engine.arguments import check_run
from fedtrue.engine.capacity import message_bytes
from fedtrue.engine.simulation import Simulation, SimulationState
from fedtrue.precision import float64
from fedtrue.runner.callbacks.interface import Round, round_of
from fedtrue.runner.journal import lines_of
from fedtrue.runner.warm_start import starting_weights
from fedtrue.tasks.task import Task
from fedtrue.types import Params


def rounds(
    task: Task,
    method: Method,
    *,
    rounds: int | None = None,
    cohort: int | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    seed: int = 0,
    lanes: int | None = None,
    dispatch: str | None = None,
    availability: Availability | None = None,
    start: Params | str | Path | None = None,
) -> Iterator[tuple[SimulationState, Round]]:
    """Train round by round in your own loop; the weights are those of `ft.train` with the same arguments, bit for bit.

    Args:
        task: one of `ft.tasks`, or your own from `ft.tasks.from_arrays`.
        method: `ft.fedopt(…)`, or one of `ft.methods`.
        rounds: after how many rounds to end; without it, never.
        cohort: clients per round; without it, the task's.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.
        seed: of weights, cohorts and batches.
        lanes: clients trained in parallel per device; without it, chosen automatically.
        dispatch: "round": all local steps in one program, "step": each alone, "timed": the faster of the two; without
            it "round", or "timed" if the model has a convolution that is slow inside loops.
        availability: simulate slow clients and clients that do not reply, `ft.Availability(…)`.
        start: weights to start from instead of the task's own: a tree of arrays, a .safetensors file or a run folder.

    Returns:
        An iterator over (state, info), one per round. `state.params` are the weights on the device, valid until the
        next round: copy what you keep. `info` is what callbacks see. `ft.evaluate(task, state)` evaluates.

    >>> import fedtrue as ft
    >>> for state, info in ft.rounds(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.01)), rounds=3):
    ...     print(info.round, round(info.metrics["loss"], 1))
    1 314.5
    2 241.5
    3 186.2
    """
    check_run(task, method, availability)
    numbers = count(1) if rounds is None else range(1, check_int("rounds", rounds) + 1)
    with float64(task.float64):
        weights = None if start is None else starting_weights(start, task)
        simulation = Simulation(
            task,
            method,
            cohort=cohort,
            local_steps=local_steps,
            rate_multipliers=rate_multipliers,
            seed=seed,
            lanes=lanes,
            dispatch=dispatch,
            availability=availability,
        )
        message = message_bytes(task, method)
        spent = privacy_of(method, len(task.train), simulation.plan.cohort)

    def loop() -> Iterator[tuple[SimulationState, Round]]:
        with float64(task.float64):
            state = simulation.start(weights)
        for number in numbers:
            began = time.perf_counter()
            with float64(task.float64):  # only while fedtrue computes: the loop's body is the user's
                state, infos = simulation.run(state, 1)
                jax.block_until_ready(state.server)
            (line,) = lines_of(infos, number - 1, time.perf_counter() - began, message, spent)
            yield state, round_of(line, rounds)

    return loop()
