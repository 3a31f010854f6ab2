"""Hyper-parameters are checked where they enter, before anything is compiled."""

import math
import operator
from collections.abc import Callable
from typing import Any

import jax

Schedule = Callable[[Any], Any]


def number(name: str, value: Any, *, low: float = 0.0, high: float = math.inf, open_low: bool = False) -> Any:
    """`value` unchanged if it is a finite number in [low, high) (or (low, high)); traced values pass unchecked."""
    if isinstance(value, jax.core.Tracer) or getattr(value, "ndim", 0) > 0:
        return value
    try:
        inside = math.isfinite(value) and (value > low if open_low else value >= low) and value < high
    except TypeError:
        inside = False
    if not inside:
        bounds = f"{'above' if open_low else 'at least'} {low:g}" + ("" if high == math.inf else f" and below {high:g}")
        raise ValueError(f"{name} must be a finite number {bounds}, not {value!r}")
    return value


def whole(name: str, value: Any, *, low: int = 0, high: float = math.inf) -> int:
    """`value` as an int, if it is a whole number in [low, high]."""
    try:
        inside = not isinstance(value, bool) and operator.index(value) >= low and value <= high
    except TypeError:
        inside = False
    if not inside:
        raise ValueError(f"{name} must be a whole number at least {low}" + _at_most(high) + f", not {value!r}")
    return int(value)


def _at_most(high: float) -> str:
    return "" if high == math.inf else f" and at most {high:g}"


def schedule(name: str, learning_rate: Any) -> Schedule:
    """A rate as a function of the round: a schedule stays itself, a number becomes a constant."""
    if callable(learning_rate):
        return learning_rate
    rate = number(name, learning_rate)
    return lambda round_index: rate
