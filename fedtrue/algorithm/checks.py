"""Hyper-parameters are checked where they enter, before anything is compiled."""

import math
import operator
from typing import Any

import jax
import numpy as np


def check_float(name: str, value: Any, *, low: float = 0.0, high: float = math.inf, open_low: bool = False) -> Any:
    """`value` unchanged if it is a finite number in [low, high) (or (low, high)); traced values pass unchecked."""
    if isinstance(value, jax.core.Tracer) or getattr(value, "ndim", 0) > 0:
        return value
    try:
        is_number = not isinstance(value, bool | np.bool_) and math.isfinite(value)
        inside = is_number and (value > low if open_low else value >= low) and value < high
    except TypeError:
        inside = False
    if not inside:
        bounds = f"{'above' if open_low else 'at least'} {low:g}" + ("" if high == math.inf else f" and below {high:g}")
        raise ValueError(f"{name} must be a finite number {bounds}, not {value!r}")
    return value


def check_int(name: str, value: Any, *, low: int = 0, high: float = math.inf) -> int:
    """`value` as an int, if it is an integer in [low, high]."""
    try:
        inside = not isinstance(value, bool) and operator.index(value) >= low and value <= high
    except TypeError:
        inside = False
    if not inside:
        raise ValueError(f"{name} must be an integer of at least {low}{_at_most(high)}, not {value!r}")
    return int(value)


def _at_most(high: float) -> str:
    return "" if high == math.inf else f" and at most {high:g}"
