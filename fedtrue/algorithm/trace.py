"""Traces: what a client's preconditioners add up to over its local steps.

    exact   the optimizer's own move, fed with ones in place of the gradients:  N = Σ_k move(1, P_k)
    paper   Algorithm 1:  M_k = β₁ M_{k−1} + (1−β₁) P_k,  N = Σ_k M_k

A client's displacement is Σ_k A_k g_k for some maps A_k. Only the exact trace equals Σ_k A_k, so only under it do the
weights of the gradients in N⁻¹Δ sum to the identity.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.client_optimizer import ClientOptimizer


class Trace(NamedTuple):
    """A running sum: `total(state)` is N up to the client's own rate multiplier."""

    rest: Callable[[ClientOptimizer, Any], Any]  # (optimizer, params) → what is kept of a client's past at first
    init: Callable[[ClientOptimizer, Any, Any, Any], Any]  # (optimizer, params, optimizer state, kept) → state
    update: Callable[[ClientOptimizer, Any, Any, Any], Any]  # (optimizer, P, optimizer state, state) → state
    total: Callable[[Any], Any]
    keep: Callable[[Any], Any]  # state → what a client that inherits its momentum must keep with it


def _zero_map(optimizer: ClientOptimizer, params: Any, optimizer_state: Any) -> Any:
    """0 in the shape of the optimizer's preconditioner."""
    shape = jax.eval_shape(lambda g, s: optimizer.precondition(g, s)[0], params, optimizer_state)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)


def exact() -> Trace:
    """N = Σ_k move(1, P_k)."""

    def rest(optimizer: ClientOptimizer, params: Any) -> Any:
        return optimizer.move.rest(linear.identity_like(params))

    def init(optimizer: ClientOptimizer, params: Any, optimizer_state: Any, kept: Any) -> Any:
        return {"memory": kept, "total": _zero_map(optimizer, params, optimizer_state)}

    def update(optimizer: ClientOptimizer, p: Any, optimizer_state: Any, state: Any) -> Any:
        ones = linear.identity_like(p)
        step, memory = optimizer.move.step(ones, p, optimizer_state, state["memory"])
        return {"memory": memory, "total": jax.tree.map(jnp.add, state["total"], step)}

    return Trace(rest, init, update, lambda state: state["total"], lambda state: state["memory"])


def paper() -> Trace:
    """M' = β₁ M + (1−β₁) P,  N' = N + M'; bias correction is ignored, as in the authors' code."""

    def init(optimizer: ClientOptimizer, params: Any, optimizer_state: Any, kept: Any) -> Any:
        zero = _zero_map(optimizer, params, optimizer_state)
        return {"average": zero, "total": zero}

    def update(optimizer: ClientOptimizer, p: Any, optimizer_state: Any, state: Any) -> Any:
        beta1 = optimizer.beta1
        average = jax.tree.map(lambda m, p: beta1 * m + (1 - beta1) * p, state["average"], p)
        return {"average": average, "total": jax.tree.map(jnp.add, state["total"], average)}

    return Trace(lambda optimizer, params: (), init, update, lambda state: state["total"], lambda state: ())


TRACES: dict[str, Callable[[], Trace]] = {"exact": exact, "paper": paper}
