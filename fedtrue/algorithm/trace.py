"""Traces: what a client's preconditioners add up to over its local steps.

    exact            the optimizer's own move, fed with ones in place of the gradients:  N = Σ_k move(1, P_k)
    first_gradient   the same, but steps before a coordinate's first gradient count with the P of that gradient
    paper            Algorithm 1:  M_k = β₁ M_{k−1} + (1−β₁) P_k,  N = Σ_k M_k

A client's displacement is Σ_k A_k g_k for some maps A_k. Only the exact trace equals Σ_k A_k, so only under it do the
weights of the gradients in N⁻¹Δ sum to the identity.

That helps only if P does not depend on whether there is a gradient. Adam starts at v = 0: a coordinate that has had no
gradient yet has P = 1/ε, one such step makes N ≈ 1/ε, and what later steps moved is divided by that. `first_gradient`
equals `exact` where every coordinate has a gradient in the first step.

What a step is multiplied by (`StepFactors`) enters every trace: c scales the ones, s the step, a the sum before it.

A proximal pull adds μ (x_k − x) to every gradient g_k. The displacement stays linear in the gradients, so its trace is
still the move fed with ones, which are pulled as well:  N' = N + move(1 − μ η N, P).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.step_options import NO_FACTORS, StepFactors, clip_factors
from fedtrue.spec import FACTORIES, Part, accepts, named


class Step(NamedTuple):
    """A local step, as a trace sees it."""

    gradient: Any
    p: Any  # P
    optimizer_state: Any  # with this gradient in it
    pull: Any = None  # μ η of a proximal term
    by: StepFactors = NO_FACTORS


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Part):
    """A running sum: `total(state)` is N up to the client's own rate multiplier."""

    init_memory: Callable[[ClientOptimizer, Any, bool], Any]  # (optimizer, params, pulled) → what is kept at first
    init: Callable[[ClientOptimizer, Any, Any, Any], Any]  # (optimizer, params, optimizer state, memory) → state
    update: Callable[[ClientOptimizer, Step, Any], Any]  # (optimizer, step, state) → state
    total: Callable[[Any], Any]
    keep: Callable[[Any], Any]  # state → memory: what a client that inherits its momentum must keep with it


def _clipped(p: Any, clip: Any) -> Any:
    """P c."""
    return p if clip is None else linear.apply(p, linear.as_maps(clip, p))


def _zero_map(optimizer: ClientOptimizer, params: Any, optimizer_state: Any) -> Any:
    """0 in the shape of the optimizer's preconditioner, clipped."""

    def preconditioner(g: Any, state: Any) -> Any:
        return _clipped(optimizer.precondition(g, state)[0], clip_factors(optimizer.options, g))

    shape = jax.eval_shape(preconditioner, params, optimizer_state)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)


@named("trace")
def exact() -> Trace:
    """N = Σ_k move(1, P_k)."""

    def init_memory(optimizer: ClientOptimizer, params: Any, pulled: bool) -> Any:
        if pulled or optimizer.options.clip_value is not None:  # the ones then differ from weight to weight
            return optimizer.move.init(_zero_map(optimizer, params, optimizer.init(params, 0)))
        return optimizer.move.init(linear.identity_like(params))

    def init(optimizer: ClientOptimizer, params: Any, optimizer_state: Any, memory: Any) -> Any:
        return {"memory": memory, "total": _zero_map(optimizer, params, optimizer_state)}

    def update(optimizer: ClientOptimizer, step: Step, state: Any) -> Any:
        p, by = step.p, step.by
        ones = linear.identity_like(p) if step.pull is None else linear.identity_minus(step.pull, state["total"])
        if by.clip is not None:
            ones = linear.apply(linear.as_maps(by.clip, p), ones)
        moved, memory = optimizer.move.step(ones, p, step.optimizer_state, state["memory"])
        return {"memory": memory, "total": linear.accumulated(by.kept, state["total"], by.rate, moved)}

    return Trace(init_memory, init, update, lambda state: state["total"], lambda state: state["memory"])


@named("trace")
def first_gradient() -> Trace:
    """As exact, but steps before a coordinate's first gradient count with the P of that gradient.

    As long as a coordinate has had no gradient, N = P_k Σ_{j≤k} move(1, I): all its steps so far count with the newest
    P. From the step after its first gradient on, N' = N + move(1, P). A preconditioner that is a matrix (Muon, Shampoo)
    has one map for all weights of a leaf: there the first gradient is the first that is not 0 in all of them, and if
    that is the first step's, the sum is the exact one.
    """
    summed = exact()

    def init_memory(optimizer: ClientOptimizer, params: Any, pulled: bool) -> Any:
        memory = summed.init_memory(optimizer, params, pulled)
        return (
            {"memory": memory, "ones": summed.init_memory(optimizer, params, False)} if optimizer.adaptive else memory
        )

    def init(optimizer: ClientOptimizer, params: Any, optimizer_state: Any, memory: Any) -> Any:
        if not optimizer.adaptive:
            return summed.init(optimizer, params, optimizer_state, memory)
        state = summed.init(optimizer, params, optimizer_state, memory["memory"])
        differ = optimizer.options.clip_value is not None
        no_steps = state["total"] if differ else jax.tree.map(jnp.zeros_like, linear.identity_like(params))
        seen = jax.tree.map(lambda w: jnp.zeros(w.shape, bool), params)
        return {**state, "steps": {"memory": memory["ones"], "total": no_steps}, "seen": seen}

    def update(optimizer: ClientOptimizer, step: Step, state: Any) -> Any:
        new = summed.update(optimizer, step, state)
        if not optimizer.adaptive:
            return new
        unscaled = step._replace(p=linear.identity_like(step.p), pull=None)
        steps = summed.update(optimizer, unscaled, state["steps"])
        all_with_this_p = linear.apply(step.p, steps["total"])
        return {
            "memory": new["memory"],
            "total": linear.where(state["seen"], new["total"], all_with_this_p),
            "steps": steps,
            "seen": jax.tree.map(lambda seen, g: seen | (g != 0), state["seen"], step.gradient),
        }

    def keep(state: Any) -> Any:
        return {"memory": state["memory"], "ones": state["steps"]["memory"]} if "steps" in state else state["memory"]

    return Trace(init_memory, init, update, summed.total, keep)


@named("trace")
def paper() -> Trace:
    """M' = β₁ M + (1−β₁) P,  N' = N + M'; bias correction and pulls are ignored, as in the authors' code."""

    def init(optimizer: ClientOptimizer, params: Any, optimizer_state: Any, memory: Any) -> Any:
        zero = _zero_map(optimizer, params, optimizer_state)
        return {"average": zero, "total": zero}

    def update(optimizer: ClientOptimizer, step: Step, state: Any) -> Any:
        beta1, by, p = optimizer.beta1, step.by, _clipped(step.p, step.by.clip)
        average = jax.tree.map(lambda m, p: beta1 * m + (1 - beta1) * p, state["average"], p)
        return {"average": average, "total": linear.accumulated(by.kept, state["total"], by.rate, average)}

    return Trace(lambda optimizer, params, pulled: (), init, update, lambda state: state["total"], lambda state: ())


TRACES = FACTORIES["trace"]
accepts("trace", Trace, '"first_gradient"')
