"""One dispatch per local step, for models that the compiler runs slower inside a loop than alone.

start, step and finish of a client are programs of their own, compiled once: all that changes from round to round is
among their arguments.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.engine.executors import Jobs
from fedtrue.engine.schedule import Plan
from fedtrue.lowering import Program

TIMED_STEPS = 3  # of which the fastest counts


class StepSeconds(NamedTuple):
    """Time per local step, both ways, with all devices at work."""

    alone: float
    in_loop: float

    @property
    def alone_is_faster(self) -> bool:
        return self.alone < self.in_loop

    def __str__(self) -> str:
        chosen = "one dispatch per local step" if self.alone_is_faster else "all steps of a round in one dispatch"
        return f"{chosen}: a step takes {1e3 * self.alone:.1f} ms alone, {1e3 * self.in_loop:.1f} ms inside the program"


class StepDispatch:
    """The programs of every phase, and the time per step where it was measured."""

    def __init__(self, devices: int, timing: bool = False):
        self.devices, self.timing = devices, timing
        self.seconds: StepSeconds | None = None
        self._phases: dict[int, PhasePrograms] = {}

    def run_jobs(self, phase: int, jobs_of: Callable[[Any], Jobs], operands: Any, plan: Plan) -> tuple[Any, Any]:
        """All jobs of a phase, one after another. `jobs_of(operands)` must be the same function in every round."""
        if phase not in self._phases:
            self._phases[phase] = PhasePrograms(jobs_of)
        programs = self._phases[phase]
        if self.timing and self.seconds is None:
            self.seconds = step_seconds(programs, operands, int(np.argmax(plan.steps)), self.devices)
        return programs.run(operands, plan)


class PhasePrograms:
    """start, step and finish of one phase's jobs, as functions of the operands."""

    def __init__(self, jobs_of: Callable[[Any], Jobs]):
        def finish(operands: Any, state: Any, deposits: Any, rows: Any, place: Any) -> tuple[Any, Any]:
            deposit, row = jobs_of(operands).finish(state, place, jnp.bool_(True))
            rows = jax.tree.map(lambda all_rows, own: all_rows.at[place].set(own), rows, row)
            return jax.tree.map(jnp.add, deposits, deposit), rows

        def steps(operands: Any, state: Any, place: Any, count: Any) -> Any:
            step = jobs_of(operands).step
            return jax.lax.fori_loop(0, count, lambda k, state: step(state, place, k), state)

        def nothing(operands: Any) -> tuple[Any, Any]:
            jobs = jobs_of(operands)
            deposit = jax.eval_shape(lambda: jobs.finish(jobs.start(0), 0, jnp.bool_(True))[0])
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), deposit), jobs.rows

        self.nothing = Program(nothing)
        self.start = Program(lambda operands, place: jobs_of(operands).start(place))
        self.step = Program(lambda operands, state, place, k: jobs_of(operands).step(state, place, k), (1,))
        self.steps_in_loop = Program(steps, (1,))
        self.finish = Program(finish, (2, 3))

    def run(self, operands: Any, plan: Plan) -> tuple[Any, Any]:
        """The sum of what the jobs deposit, and the row that each job leaves behind."""
        deposits, rows = self.nothing(operands)
        steps = np.asarray(plan.steps)
        for place in np.flatnonzero(np.asarray(plan.lane) < plan.length.shape[0]):
            state = self.start(operands, jnp.int32(place))
            for k in range(steps[place]):
                state = self.step(operands, state, jnp.int32(place), jnp.int32(k))
            deposits, rows = self.finish(operands, state, deposits, rows, jnp.int32(place))
        return deposits, rows


def step_seconds(programs: PhasePrograms, operands: Any, place: int, devices: int) -> StepSeconds:
    """A few steps of one job, dispatched one by one and as one loop; in loops every device has a lane of its own."""
    start = lambda: programs.start(operands, jnp.int32(place))
    alone = _fastest(lambda state: programs.step(operands, state, jnp.int32(place), jnp.int32(0)), start)
    in_loop = _fastest(lambda state: programs.steps_in_loop(operands, state, jnp.int32(place), jnp.int32(1)), start)
    return StepSeconds(alone, in_loop / devices)


def _fastest(step: Callable[[Any], Any], start: Callable[[], Any]) -> float:
    state, times = jax.block_until_ready(step(start())), []  # the first call compiles
    for _ in range(TIMED_STEPS):
        began = time.perf_counter()
        state = jax.block_until_ready(step(state))
        times.append(time.perf_counter() - began)
    return min(times)
