"""Schedules: a learning rate as a function of the round, or a factor as a function of the step within a round.

    ft.client.adam(ft.schedules.cosine(0.1, length=500))                      η falls to 0 over 500 rounds
    ft.client.adam(0.1, within_round=ft.schedules.linear(1.0, 0.1))           η_k falls to η/10 over the client's steps

A schedule is a part: it has a spec, so it can be written in TOML and recorded. A function of one number, such as an
optax schedule, may take its place; records then name it, but cannot build it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from fedtrue.algorithm.checks import check_float
from fedtrue.spec import FACTORIES, Part, named, takes_parts
from fedtrue.types import LearningRate


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Part):
    """A number for every count of 0, 1, 2 …: rounds, or local steps.

    >>> import fedtrue as ft
    >>> halving = ft.schedules.exponential(0.4, factor=0.5)
    >>> [float(halving(round)) for round in range(3)]
    [0.4..., 0.2..., 0.1...]
    """

    value: Callable[[Any, Any], Any]  # (count, length) → number; `length` is for schedules without one of their own
    needs_length: bool = False

    def __call__(self, count: Any, length: Any = None) -> Any:
        return self.value(count, length)


def as_schedule(name: str, value: Any) -> Schedule:
    """A schedule as it is; a function of the count, or a number, as a schedule."""
    if isinstance(value, Schedule):
        return value
    if callable(value):
        return Schedule(lambda count, length: value(count))
    number = check_float(name, value)
    return Schedule(lambda count, length: number)


def round_schedule(name: str, learning_rate: Any) -> Schedule:
    """A learning rate as a function of the round; its length, if it has one, must be known."""
    schedule = as_schedule(name, learning_rate)
    if schedule.needs_length:
        how = f"{schedule.name}(…, length=500)"
        raise ValueError(f"{name}: {schedule.name} needs its length in rounds: give it, e.g. {how}")
    return schedule


def _over_length(length: Any, shape: Callable[[Any], Any]) -> Schedule:
    """`shape` of the share of the length that has passed: 0 at first, 1 from `length` on."""

    def value(count: Any, given: Any) -> Any:
        return shape(jnp.clip(_real(count) / (given if length is None else length), 0, 1))

    return Schedule(value, needs_length=length is None)


def _real(number: Any) -> Any:
    """In the precision of the program: a quotient of two int32 would be a float32 everywhere."""
    return jnp.asarray(number, jnp.result_type(float))


def _check_length(name: str, length: Any) -> None:
    if length is not None:
        check_float(name, length, open_low=True)


@named("schedule")
def constant(value: float) -> Schedule:
    """The same number always.

    Args:
        value: the number.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> float(ft.schedules.constant(0.5)(7))
    0.5
    """
    check_float("constant: value", value)
    return Schedule(lambda count, length: _real(value))


@named("schedule")
def linear(initial: float, final: float, length: float | None = None) -> Schedule:
    """A straight line from `initial` to `final`, which it then keeps.

    Args:
        initial: the first value.
        final: the value from count `length` on.
        length: rounds (or local steps) until then; within a round it may be left out: the client's number of steps.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> float(ft.schedules.linear(1.0, 0.0, length=4)(1))
    0.75
    """
    check_float("linear: initial", initial)
    check_float("linear: final", final)
    _check_length("linear: length", length)
    return _over_length(length, lambda share: initial + (final - initial) * share)


@named("schedule")
def cosine(initial: float, length: float | None = None, final: float = 0.0) -> Schedule:
    """Half a period of a cosine from `initial` to `final`, which it then keeps.

    Args:
        initial: the first value.
        length: rounds (or local steps) until `final`; within a round it may be left out: the client's number of steps.
        final: the value from then on.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> float(ft.schedules.cosine(1.0, length=4)(4))
    0.0
    """
    check_float("cosine: initial", initial)
    check_float("cosine: final", final)
    _check_length("cosine: length", length)
    return _over_length(length, lambda share: final + (initial - final) * (1 + jnp.cos(jnp.pi * share)) / 2)


@named("schedule")
def exponential(initial: float, factor: float, every: float = 1.0) -> Schedule:
    """initial · factor^(count / every).

    Args:
        initial: the first value.
        factor: what it is multiplied by in `every` rounds (or local steps).
        every: how many rounds (or local steps) that takes.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> float(ft.schedules.exponential(1.0, factor=0.25, every=2)(1))
    0.5
    """
    check_float("exponential: initial", initial)
    check_float("exponential: factor", factor, open_low=True)
    check_float("exponential: every", every, open_low=True)
    return Schedule(lambda count, length: initial * _real(factor) ** (_real(count) / every))


@named("schedule")
def inverse(initial: float, every: float = 1.0, power: float = 1.0) -> Schedule:
    """initial / (1 + count / every)^power: 1/t, or 1/√t with power 0.5.

    Args:
        initial: the first value.
        every: after so many rounds (or local steps) it is initial / 2^power.
        power: 1 or 0.5, or another number.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> float(ft.schedules.inverse(1.0, every=10)(10))
    0.5
    """
    check_float("inverse: initial", initial)
    check_float("inverse: every", every, open_low=True)
    check_float("inverse: power", power)
    return Schedule(lambda count, length: initial / (1 + _real(count) / every) ** power)


@named("schedule")
def piecewise(values: Sequence[float], boundaries: Sequence[float]) -> Schedule:
    """values[0] before boundaries[0], then values[1] until boundaries[1], and so on.

    Args:
        values: the values, one more than boundaries.
        boundaries: the rounds (or local steps) at which the next value begins, increasing.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> drops = ft.schedules.piecewise([0.5, 0.25], boundaries=[200])
    >>> float(drops(199)), float(drops(200))
    (0.5, 0.25)
    """
    values, boundaries = list(values), list(boundaries)
    if len(values) != len(boundaries) + 1:
        raise ValueError(f"piecewise: {len(values)} values and {len(boundaries)} boundaries: give one value more")
    if sorted(boundaries) != boundaries:
        raise ValueError(f"piecewise: boundaries must increase, not {boundaries}")
    for entry in values:
        check_float("piecewise: values", entry)

    def value(count: Any, length: Any) -> Any:
        return _real(values)[jnp.sum(_real(count) >= _real(boundaries))]

    return Schedule(value)


@named("schedule")
def warmup(schedule: LearningRate, length: float) -> Schedule:
    """Another schedule, times a factor that rises in `length` equal steps: 1/length at first, then 2/length … 1.

    Args:
        schedule: a schedule, or a number.
        length: rounds (or local steps) until the factor is 1.

    Returns:
        A schedule for a learning rate.

    >>> import fedtrue as ft
    >>> rate = ft.schedules.warmup(0.5, length=2)
    >>> [float(rate(round)) for round in range(3)]
    [0.25, 0.5, 0.5]
    """
    check_float("warmup: length", length, open_low=True)
    then = as_schedule("warmup: schedule", schedule)

    def value(count: Any, given: Any) -> Any:
        return then(count, given) * jnp.clip((_real(count) + 1) / length, 0, 1)

    return Schedule(value, then.needs_length)


SCHEDULES = FACTORIES["schedule"]
takes_parts("schedule", "learning_rate", "client_rate", "server_rate", "within_round")
