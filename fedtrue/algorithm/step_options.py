"""What every client optimizer takes besides its own options: a schedule within the round, clipping, weight decay.

    c_k = min(1, C/‖g_k‖) or min(1, C/|g_k|)          P_k, state ← precondition(c_k g_k)
    η_k = η s_k,  a_k = 1 − γ_i η_k λ                 x_{k+1} = a_k x_k − γ_i η_k move(c_k g_k, P_k)

The move stays linear in the gradients: c_k multiplies what enters it, s_k what leaves it, a_k what was moved before.
The trace has the same three factors. The decay itself is affine, a multiple of the weights x that the client started
from:  x − x_τ = γ_i η (N g + λ S x),  S ← a_k S + s_k.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.schedule import Schedule, as_schedule
from fedtrue.spec import with_common_options
from fedtrue.types import PyTree


class StepOptions(NamedTuple):
    """None: the option is not used, and costs nothing."""

    within_round: Schedule | None = None  # (step, the client's number of steps) → s
    clip_norm: Any = None
    clip_value: Any = None
    weight_decay: Any = None  # λ

    @property
    def clips(self) -> bool:
        return self.clip_norm is not None or self.clip_value is not None


NO_OPTIONS = StepOptions()

DESCRIPTIONS = {
    "within_round": "a schedule of the local step, from 0; it multiplies η.",
    "clip_norm": "clip every gradient to this global norm.",
    "clip_value": "clip every entry of a gradient to ± this value (before the norm, if both are given).",
    "weight_decay": "λ of decoupled weight decay, as AdamW's: every step also takes η λ x off the weights.",
}


class StepFactors(NamedTuple):
    """One step's factors; None stands for 1."""

    clip: PyTree | None = None  # c, one number or array per leaf
    rate: Any = None  # s
    kept: Any = None  # a


NO_FACTORS = StepFactors()


def with_step_options(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A factory of client optimizers that takes these options too, by name."""

    def add(optimizer: Any, name: str, options: dict[str, Any]) -> Any:
        return replace(optimizer, options=checked_options(name, **options))

    return with_common_options(factory, DESCRIPTIONS, add)


def checked_options(name: str, within_round: Any, clip_norm: Any, clip_value: Any, weight_decay: Any) -> StepOptions:
    """The options of the optimizer of this name; a wrong value is refused."""
    for option, value in (("clip_norm", clip_norm), ("clip_value", clip_value)):
        if value is not None:
            check_float(f"{name}: {option}", value, open_low=True)
    if weight_decay is not None:
        check_float(f"{name}: weight_decay", weight_decay)
    factor = None if within_round is None else as_schedule(f"{name}: within_round", within_round)
    return StepOptions(factor, clip_norm, clip_value, weight_decay)


def clip_factors(options: StepOptions, gradient: PyTree) -> PyTree | None:
    """c, as a tree of numbers (by norm) or of arrays (by value); None without clipping."""
    if not options.clips:
        return None
    factors = jax.tree.map(lambda g: jnp.ones((), g.dtype), gradient)
    if options.clip_value is not None:
        factors = jax.tree.map(lambda g: _at_most_one(options.clip_value, jnp.abs(g)), gradient)
    if options.clip_norm is not None:
        squares = jax.tree.map(lambda c, g: jnp.sum((c * g) ** 2), factors, gradient)
        norm = jnp.sqrt(sum(jax.tree.leaves(squares)))
        factors = jax.tree.map(lambda c: c * _at_most_one(options.clip_norm, norm).astype(c.dtype), factors)
    return factors


def _at_most_one(bound: Any, size: Any) -> Any:
    """min(1, bound/size), and 1 for a size of 0."""
    return jnp.where(size > bound, bound / jnp.where(size > bound, size, 1), 1).astype(size.dtype)


def chosen_options(number: Callable[[Sequence[Any]], Any], options: Sequence[StepOptions]) -> StepOptions:
    """The options of one of several optimizers; `number` picks one of several numbers."""

    def picked(name: str, unused: float) -> Any:
        values = [getattr(option, name) for option in options]
        if all(value is None for value in values):
            return None
        return number([unused if value is None else value for value in values])

    def within_round(step: Any, steps: Any) -> Any:
        return number([option.within_round(step, steps) if option.within_round else 1.0 for option in options])

    scheduled = any(option.within_round for option in options)
    return StepOptions(
        Schedule(within_round) if scheduled else None,
        picked("clip_norm", math.inf),
        picked("clip_value", math.inf),
        picked("weight_decay", 0.0),
    )
