"""Moves: what a client does with a gradient once its preconditioner is given; linear, so ones can take its place."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear


class Move(NamedTuple):
    """A linear map from gradients to steps with a memory: momentum, Nesterov, bias correction."""

    init: Callable[[Any], Any]  # gradients' shape → memory before the first step
    step: Callable[[Any, Any, Any, Any], tuple[Any, Any]]  # (vector, P, the optimizer's state, memory) → (step, memory)


def plain_move() -> Move:
    """step = P g."""
    return Move(init=lambda params: (), step=lambda g, p, state, memory: (linear.apply(p, g), ()))


def momentum_move(beta: Any, dampening: Any, nesterov: bool = False) -> Move:
    """m' = β m + (1−d) g,  step = P m'  (Nesterov: P (β m' + (1−d) g))."""

    def step(g: Any, p: Any, state: Any, momentum: Any) -> tuple[Any, Any]:
        momentum = jax.tree.map(lambda m, g: beta * m + (1 - dampening) * g, momentum, g)
        look_ahead = jax.tree.map(lambda m, g: beta * m + (1 - dampening) * g, momentum, g) if nesterov else momentum
        return linear.apply(p, look_ahead), momentum

    return Move(init=lambda params: jax.tree.map(jnp.zeros_like, params), step=step)


def bias_corrected_move(beta1: Any, beta2: Any, is_corrected: Callable[[Any], Any] | None = None) -> Move:
    """m' = β₁ m + (1−β₁) g,  step = P m' · √(1−β₂ᵗ) / (1−β₁ᵏ), as Keras does it.

    k counts the momentum's steps and restarts with it; t counts the accumulator's, and lives in the optimizer's state.
    `is_corrected(state)` says of every leaf of the weights whether the factor is for it; without it, it is for all.
    """
    inner = momentum_move(beta1, beta1)

    def step(g: Any, p: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        momentum, count = memory
        step, momentum = inner.step(g, p, state, momentum)
        count = count + 1
        scale = jnp.sqrt(1 - beta2 ** state["count"]) / (1 - beta1**count)
        scaled = lambda tree: jax.tree.map(lambda s: (scale * s).astype(s.dtype), tree)
        if is_corrected is None:
            return scaled(step), (momentum, count)
        chosen = jax.tree.map(lambda corrected, s: scaled(s) if corrected else s, is_corrected(state), step)
        return chosen, (momentum, count)

    return Move(init=lambda params: (inner.init(params), jnp.zeros((), float_type(params))), step=step)


def float_type(params: Any) -> Any:
    """The dtype of a tree of weights."""
    return jnp.result_type(*jax.tree.leaves(params))
