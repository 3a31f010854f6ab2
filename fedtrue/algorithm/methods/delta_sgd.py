"""Δ-SGD (Kim et al. 2024): every client chooses its step sizes from the smoothness that it sees along its path.

y_{k+1} = y_k − η_k g(y_k; ζ_k)
η_k = min( γ ‖y_k − y_{k−1}‖ / (2 ‖g(y_k; ζ_k) − g(y_{k−1}; ζ_k)‖),  √(1 + δ θ_{k−1}) η_{k−1} ),  θ_k = η_k / η_{k−1}

Both gradients of the quotient are of the same batch ζ_k, as in the authors' code (jlylekim/auto-tuned-FL): one more
gradient per step, and noise that does not depend on the weights cancels. Where one of the differences is 0, the second
entry of the minimum is taken, also as there. Unlike here, that code begins a round with √(1 + δ θ_0) η_0 in place of
η_0, and adds 1e-8 to every η_k.

For a quadratic whose curvatures are in [μ, L], the quotient is in [γ/(2L), γ/(2μ)]. So η_k ≤ γ/(2μ) from k = 1 on, and
η_k ≥ min(η_0, γ/(2L)), as the second entry of the minimum never shrinks a step size. In one dimension η_k = γ/(2L) as
soon as growth allows it: with γ = 2 that is Newton's step.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.move import float_type, plain_move
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.schedule import constant
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import exact
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named


@named("method")
def delta_sgd(
    client_rate: float = 0.2,
    gamma: float = 2.0,
    delta: float = 0.1,
    initial_ratio: float = 1.0,
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Kim et al. 2024: client SGD without a learning rate to tune; every client adapts its own, each round from η_0.

    Args:
        client_rate: η_0, the first step size of every client in a round.
        gamma: γ, which multiplies the inverse of the local smoothness.
        delta: δ, how fast a step size may grow.
        initial_ratio: θ_0, the ratio of step sizes before the first.
        correction: "none", "local", "joint", or an `ft.Correction`; the trace is the exact one, N = Σ η_k.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.delta_sgd(client_rate=0.1)
    >>> result = ft.train(ft.tasks.quadratic(), method, rounds=3, local_steps=4)
    """
    check_float("delta_sgd: client_rate", client_rate, open_low=True)
    check_float("delta_sgd: gamma", gamma, open_low=True)
    check_float("delta_sgd: delta", delta)
    check_float("delta_sgd: initial_ratio", initial_ratio)
    clients = smoothness_sgd(client_rate, gamma, delta, initial_ratio)
    return federated(ClientParts(clients, exact(), correction), server, sampling, weighting)


def smoothness_sgd(first_rate: Any, gamma: Any, delta: Any, initial_ratio: Any) -> ClientOptimizer:
    """P = η_k, a number; the learning rate that multiplies it is 1."""

    def init(params: Any, client: Any) -> dict[str, Any]:
        number = lambda value: jnp.asarray(value, float_type(params))
        return {"previous": params, "rate": number(first_rate), "ratio": number(initial_ratio), "first": number(1.0)}

    def observe(state: dict[str, Any], x: Any, g: Any, gradient_at: Callable[[Any], Any]) -> dict[str, Any]:
        moved, changed = _distance(x, state["previous"]), _distance(g, gradient_at(state["previous"]))
        grown = jnp.sqrt(1 + delta * state["ratio"]) * state["rate"]
        seen = (moved > 0) & (changed > 0)
        rate = jnp.where(seen, jnp.minimum(gamma * moved / (2 * jnp.where(seen, changed, 1)), grown), grown)
        is_first = state["first"] > 0
        return {
            "previous": x,
            "rate": jnp.where(is_first, state["rate"], rate).astype(state["rate"].dtype),
            "ratio": jnp.where(is_first, state["ratio"], rate / state["rate"]).astype(state["ratio"].dtype),
            "first": jnp.zeros_like(state["first"]),
        }

    def preconditioner(state: dict[str, Any], g: Any) -> Any:
        return jax.tree.map(lambda leaf: state["rate"].astype(leaf.dtype), g)

    return ClientOptimizer(
        constant(1.0),
        init=init,
        precondition=lambda g, state: (preconditioner(state, g), state),
        preconditioner=preconditioner,
        move=plain_move(),
        observe=observe,
    )


def _distance(tree: Any, other: Any) -> Any:
    """‖a − b‖ over all leaves."""
    squares = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), tree, other)
    return jnp.sqrt(sum(jax.tree.leaves(squares)))
