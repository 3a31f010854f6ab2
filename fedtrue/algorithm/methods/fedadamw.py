"""FedAdamW (Liu et al. 2025): local AdamW steps with averaged second moments and the mean direction of the last round.

m ← β₁ m + (1−β₁) g,  v ← β₂ v + (1−β₂) g²                      local steps from y = x, m = 0, v = V
y ← y − η (m̂ / (√v̂ + ε) + α d + λ y)                            m̂ of this round's steps, v̂ of all rounds' so far
V ← Σ w_i mean(v_i),  d ← Σ w_i (x − y_i) / (η Σ w_i γ_i τ_i)      after the round; one mean per block of weights

A block is one array of the weights, so one number per array travels in place of the second moments.
"""

import jax
import jax.numpy as jnp

from fedtrue.algorithm.adam_family import adam
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.methods.fedlada import SecondMoments, with_last_direction
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


@named("method")
def fedadamw(
    client_rate: LearningRate,
    alpha: float = 0.5,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    server: ServerOptimizer = by_name("sgd"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Liu et al. 2025: client AdamW; the mean of the second moments per array and the last mean direction are shared.

    Args:
        client_rate: η, the clients' learning rate, a number, a schedule or a function of the round.
        alpha: α, how much of the last round's mean direction every local step adds.
        beta1: β₁ of the momentum, which restarts in every round.
        beta2: β₂ of the squared gradients.
        epsilon: ε, added to the root.
        weight_decay: λ of the clients' decoupled weight decay.
        server: the server's optimizer, one of `ft.server`; SGD with rate 1 takes the mean of the weights, as published.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedadamw(3e-4, alpha=0.5).name
    'fedadamw'
    """
    check_float("fedadamw: alpha", alpha)
    moments = SecondMoments(
        init=lambda params: jax.tree.map(lambda w: jnp.zeros((), w.dtype), params),
        begin=lambda params, v: {"v": jax.tree.map(jnp.full_like, params, v)},
        send=lambda state: jax.tree.map(jnp.mean, state["v"]),
    )
    adamw = adam(client_rate, beta1, beta2, epsilon, weight_decay=weight_decay)
    return with_last_direction(adamw, alpha, moments, server, sampling, weighting)
