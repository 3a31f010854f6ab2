"""Packing a cohort onto lanes: longest client first, each to the lane that is free soonest.

All of this is arithmetic on a few small arrays, so it runs inside the compiled program and cohorts of any sizes share
one compilation. A place is a client's position in the cohort; an empty place is on no lane.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

NOBODY = -1


class Plan(NamedTuple):
    """Where and when each place of the cohort trains, in steps of its lane."""

    lane: Any  # int32[cohort]; as many as there are lanes: nowhere
    start: Any  # int32[cohort]: the lane's clock when the client begins
    steps: Any  # int32[cohort]
    length: Any  # int32[lanes]: each lane's clock at the end


def pack(steps: Any, lanes: int, active: Any = True) -> Plan:
    """Longest first onto the least loaded lane; places that are not active take no time and no lane."""
    steps = jnp.where(active, steps, 0)

    def place(load: Any, slot: Any) -> tuple[Any, tuple[Any, Any]]:
        lane = jnp.argmin(load)
        return load.at[lane].add(steps[slot]), (lane.astype(jnp.int32), load[lane])

    longest_first = jnp.argsort(-steps)
    length, (lane, start) = jax.lax.scan(place, jnp.zeros(lanes, jnp.int32), longest_first)
    back = jnp.argsort(longest_first)
    return Plan(jnp.where(active, lane[back], lanes), start[back], steps, length)


def at_work(plan: Plan, lanes: Any, clock: Any) -> Any:
    """The place each lane is busy with (or was last) when its clock stands at `clock`; NOBODY for an empty lane."""
    begun = (plan.lane[None, :] == lanes[:, None]) & (plan.start[None, :] <= clock)
    latest = jnp.argmax(jnp.where(begun, plan.start[None, :] + 1, 0), axis=1)
    return jnp.where(begun.any(axis=1), latest, NOBODY).astype(jnp.int32)


def next_change(plan: Plan, lanes: Any, clock: Any) -> Any:
    """The first moment after `clock` at which one of these lanes takes up its next client, or the end of them all."""
    own = (plan.lane[None, :] == lanes[:, None]).any(axis=0)
    end = jnp.max(plan.length[lanes])
    return jnp.min(jnp.where(own & (plan.start > clock), plan.start, end))


def in_turn(plan: Plan, lane: Any) -> tuple[Any, Any]:
    """The places of one lane in the order in which they train, and how many there are; the others stand behind."""
    own = plan.lane == lane
    return jnp.argsort(jnp.where(own, plan.start, jnp.iinfo(jnp.int32).max)), jnp.sum(own)


def idle_steps(plan: Plan) -> Any:
    """Steps in which lanes wait for the longest one: the price of packing."""
    return jnp.max(plan.length) * plan.length.shape[0] - jnp.sum(plan.length)
