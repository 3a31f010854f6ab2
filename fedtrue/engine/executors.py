"""Running the jobs of a cohort on lanes. An executor knows nothing of federated learning: a job starts, steps, ends.

    one_lane           one job after another
    lane_per_job       all jobs side by side, from the first step to the last
    shared_lanes       several lanes, each with several jobs in turn

Each returns the sum of what the jobs deposit, and the row that each job leaves behind. Memory is lanes × state,
whatever the number of jobs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.engine.schedule import NOBODY, Plan, at_work, in_turn, next_change


class Jobs(NamedTuple):
    """What is to be done at each place of the cohort."""

    start: Callable[[Any], Any]  # place → state
    step: Callable[[Any, Any, Any], Any]  # (state, place, step number) → state
    finish: Callable[[Any, Any, Any], tuple[Any, Any]]  # (state, place, present) → (deposit, row)
    rows: Any  # zeros: one row per place


def run_jobs(jobs: Jobs, plan: Plan, lanes: Any) -> tuple[Any, Any]:
    """All jobs on these lanes, by the executor that fits: `lanes` may be the share of one device."""
    places, all_lanes = plan.steps.shape[0], plan.length.shape[0]
    if lanes.shape[0] == 1:
        return one_lane(jobs, plan, lanes[0])
    return lane_per_job(jobs, plan, lanes) if places <= all_lanes else shared_lanes(jobs, plan, lanes)


def one_lane(jobs: Jobs, plan: Plan, lane: Any) -> tuple[Any, Any]:
    """One job after another: without an axis of lanes, so that XLA updates the state in place."""
    order, count = in_turn(plan, lane)

    def run_one(turn: Any, carry: Any) -> Any:
        deposits, rows = carry
        place = order[turn]
        step = lambda k, state: jobs.step(state, place, k)
        state = jax.lax.fori_loop(0, plan.steps[place], step, jobs.start(place))
        deposit, row = jobs.finish(state, place, jnp.bool_(True))
        return _added(deposits, deposit), jax.tree.map(lambda all_rows, own: all_rows.at[place].set(own), rows, row)

    nothing = _zeros(jax.eval_shape(lambda: jobs.finish(jobs.start(0), 0, jnp.bool_(True))[0]))
    return jax.lax.fori_loop(0, count, run_one, (nothing, jobs.rows))


def lane_per_job(jobs: Jobs, plan: Plan, lanes: Any) -> tuple[Any, Any]:
    """All jobs begin now. Under `vmap` their common start is one state, not one per lane, and read once."""
    places = at_work(plan, lanes, 0)
    begun = jax.vmap(lambda place: jobs.step(jobs.start(place), place, 0))(places)
    step = jax.vmap(_step_if_busy(jobs, plan), (0, 0, None))
    end = jnp.max(plan.length[lanes])
    states = jax.lax.fori_loop(1, end, lambda clock, states: step(states, places, clock), begun)
    return _deposited(jobs, plan, states, places, places != NOBODY, jobs.rows)


def shared_lanes(jobs: Jobs, plan: Plan, lanes: Any) -> tuple[Any, Any]:
    """Between two moments at which a lane takes up its next job, all lanes step in one loop without a branch.

    Deposits cost a pass over the state, so they happen at those moments only.
    """
    step = jax.vmap(_step_if_busy(jobs, plan), (0, 0, None))
    end = jnp.max(plan.length[lanes])

    def until_next_change(carry: Any) -> Any:
        clock, before, states, deposits, rows = carry
        places = at_work(plan, lanes, clock)
        states = _choose(places != before, jax.vmap(jobs.start)(places), states)
        change = next_change(plan, lanes, clock)
        states = jax.lax.fori_loop(clock, change, lambda t, states: step(states, places, t), states)
        following = jnp.where(change == end, NOBODY, at_work(plan, lanes, change))
        leaving = (places != following) & (places != NOBODY)
        deposit, rows = _deposited(jobs, plan, states, places, leaving, rows)
        return change, places, states, _added(deposits, deposit), rows

    places = jnp.zeros(lanes.shape, jnp.int32)
    states = _zeros(jax.eval_shape(jax.vmap(jobs.start), places))
    nothing = _zeros(jax.eval_shape(lambda: _deposited(jobs, plan, states, places, places == 0, jobs.rows)[0]))
    first = (jnp.int32(0), places + NOBODY, states, nothing, jobs.rows)
    return jax.lax.while_loop(lambda carry: carry[0] < end, until_next_change, first)[3:]


def _step_if_busy(jobs: Jobs, plan: Plan) -> Callable[[Any, Any, Any], Any]:
    def step(state: Any, place: Any, clock: Any) -> Any:
        k = clock - plan.start[place]
        return _choose(k < plan.steps[place], jobs.step(state, place, k), state)

    return step


def _deposited(jobs: Jobs, plan: Plan, states: Any, places: Any, leaving: Any, rows: Any) -> tuple[Any, Any]:
    """The sum over the lanes that their jobs are leaving, and the rows of those jobs."""
    deposits, own = jax.vmap(jobs.finish)(states, places, leaving)
    target = jnp.where(leaving, places, plan.steps.shape[0])  # out of range: not written
    summed = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), deposits)
    return summed, jax.tree.map(lambda all_rows, new: all_rows.at[target].set(new, mode="drop"), rows, own)


def _added(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _choose(condition: Any, when_true: Any, when_false: Any) -> Any:
    """`where` for trees, the condition spread over the trailing axes."""

    def choose(a: Any, b: Any) -> Any:
        return jnp.where(jnp.reshape(condition, condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(choose, when_true, when_false)


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
