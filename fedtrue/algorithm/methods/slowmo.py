"""SlowMo (Wang, Tantia, Ballas and Rabbat 2020): a slow momentum over rounds, in units of the clients' gradients.

    u' = β u + Δ / γ                                    Δ = x − x̄, the mean pseudo-gradient; γ: the clients' rate
    x' = x − α γ u'

With a constant γ it is FedAvgM. Under a schedule of γ the momentum keeps gradients of earlier rounds, not moves of
their learning rates.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import Context, ServerState
from fedtrue.algorithm.method import Method, ServerStep, federated
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.schedule import round_schedule
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


@named("method")
def slowmo(
    client: ClientOptimizer = by_name("sgd"),
    server_rate: LearningRate = 1.0,
    beta: float = 0.7,
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Wang et al. 2020: server momentum that is divided by the clients' learning rate of its round.

    Args:
        client: the clients' optimizer, one of `ft.client`; its state restarts in every round.
        server_rate: α, the slow learning rate.
        beta: β of the slow momentum.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.slowmo(ft.client.sgd(ft.schedules.cosine(0.1, length=500)), beta=0.7)
    """
    rate, beta = round_schedule("slowmo: server_rate", server_rate), check_float("slowmo: beta", beta, high=1.0)

    def update(pseudo_gradient: Any, server: ServerState, sums: WeightedSums, context: Context) -> tuple[Any, Any]:
        alpha, gamma = rate(context.round), jnp.asarray(client.learning_rate(context.round))
        inverse = jnp.where(gamma > 0, 1 / jnp.where(gamma > 0, gamma, 1), 0)  # at a rate of 0 nobody moves: Δ = 0
        renewed = lambda u, d: (beta * u + inverse * d).astype(u.dtype)
        # γ u' = γ β u + Δ, without dividing Δ by γ: β = 0 is then FedAvg bit for bit
        moved = lambda u, d: (-alpha * (gamma * beta * u + d)).astype(d.dtype)
        momentum = server.optimizer
        return jax.tree.map(moved, momentum, pseudo_gradient), jax.tree.map(renewed, momentum, pseudo_gradient)

    step = ServerStep(lambda params: jax.tree.map(jnp.zeros_like, params), update)
    return federated(ClientParts(client, trace, correction), step, sampling, weighting)
