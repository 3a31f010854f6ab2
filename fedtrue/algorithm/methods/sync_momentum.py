"""Local momentum SGD with synchronised buffers (Yu, Jin, Yang 2019): momentum is averaged together with the weights.

m ← β m + g_i(y),  y ← y − η m                        local steps from y = x and m = u
x ← Σ w_i y_i,  u ← Σ w_i m_i                         the means after the round, from which all clients start the next
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm import aggregation
from fedtrue.algorithm import client_optimizer as client
from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import none
from fedtrue.algorithm.interface import EXACT, STATE, Broadcast, Client, Contribution
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.trace import exact
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


@named("method")
def sync_momentum(
    client_rate: LearningRate,
    server_rate: LearningRate = 1.0,
    beta: float = 0.9,
    nesterov: bool = False,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Yu et al. 2019: client momentum SGD; momentum buffers are averaged with the weights, and never restart.

    The momentum has no dampening, as published: a constant gradient is amplified by 1/(1−β).

    Args:
        client_rate: η, the clients' learning rate, a number, a schedule or a function of the round.
        server_rate: the server's learning rate; 1 takes the mean of the clients' weights, as published.
        beta: β of the momentum.
        nesterov: look ahead by one momentum step.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.sync_momentum(0.01, beta=0.9).name
    'sync_momentum'
    """

    def report(broadcast: Broadcast, memory: Any, steps: Steps, of: Client) -> tuple[dict[str, Contribution], Any]:
        return {"momentum": Contribution(steps.move, STATE, EXACT)}, memory

    return federated(
        ClientParts(
            client.momentum(client_rate, beta, dampening=0.0, nesterov=nesterov),
            exact(),
            none(),
            rule=LocalRule(begin=lambda broadcast: broadcast.shared, report=report),
        ),
        server.sgd(server_rate),
        sampling,
        weighting,
        init_shared=lambda params: {"move": jax.tree.map(jnp.zeros_like, params)},
        receive_shared=lambda state, sums, context: {"move": aggregation.mean(sums, "momentum")},
    )
