"""Mime (Karimireddy et al. 2021): as MimeLite, with an SVRG-type correction of every local gradient.

c = Σ w_i ∇F_i(x)                                     phase 1: the cohort's gradient at the server's weights
y ← y − η step(g_i(y; ζ) − g_i(x; ζ) + c, s)          phase 2: local steps, both gradients on the same batch ζ, s fixed
s ← s updated by c                                    once per round

At the minimiser c = 0 and the differences vanish, so no client moves, whatever its number of steps.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule, all_finite, batch_weight
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import (
    EXACT,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Context,
    Contribution,
    Loss,
    Phase,
    ServerState,
)
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.methods.mimelite import first_statistics, held, server_statistics, updated_statistics
from fedtrue.algorithm.report import MEAN, add_gradient, gradient_means, no_gradients
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named

GRADIENT = "gradient"  # c, in what the server shares and in what clients send
AROUND_GRADIENT = LocalRule(  # every gradient becomes g_i(y; ζ) − g_i(x; ζ) + c
    control=True, term=lambda broadcast, memory: broadcast.shared[GRADIENT]
)


@named("method")
def mime(
    client: ClientOptimizer = by_name("momentum"),
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Karimireddy et al. 2021: the server's statistics, fixed during local steps, and gradients corrected as in SVRG.

    A round has two phases with the same cohort. ∇F_i(x) is the mean over the batches of the client's local steps: the
    full local gradient where these are an epoch. With bias correction the first round only gathers statistics.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.mime(ft.client.momentum(0.1, beta=0.9))
    >>> len(method.phases)
    2
    """

    def init_shared(params: Any) -> dict[str, Any]:
        return {**first_statistics(client, params), GRADIENT: jax.tree.map(jnp.zeros_like, params)}

    def receive_shared(state: ServerState, sums: WeightedSums, context: Context) -> dict[str, Any]:
        c = state.shared[GRADIENT]
        return {**updated_statistics(client, c, state.shared), GRADIENT: c}

    steps = federated(
        ClientParts(held(client), trace, correction, rule=AROUND_GRADIENT._replace(begin=server_statistics)),
        server,
        sampling,
        weighting,
        init_shared=init_shared,
        receive_shared=receive_shared,
    )
    return replace(steps, phases=(gradient_phase(), *steps.phases))


def gradient_phase() -> Phase:
    """c = Σ w_i ∇F_i(x) over the cohort, which the server then shares; 0 if nobody has sent a gradient."""

    def receive(state: ServerState, sums: WeightedSums, context: Context) -> tuple[ServerState, Any]:
        c = aggregation.mean(sums, GRADIENT)
        return state._replace(shared={**state.shared, GRADIENT: c}), c

    return Phase(
        gradient_work,
        receive,
        broadcast=lambda state, context: Broadcast(state.params, ()),
        receives_nothing=True,  # a gradient of an earlier round belongs to other weights
    )


def gradient_work(loss: Loss) -> ClientWork:
    """The mean gradient of a client's batches at the server's weights; every example counts the same."""

    def start(broadcast: Broadcast, client: Client, memory: Any) -> Any:
        return no_gradients(frozenset({MEAN}), broadcast.params), loss.no_sums

    def step(broadcast: Broadcast, state: Any, batch: Any, learning_rate: Any) -> Any:
        gradients, metric_sums = state
        (_, sums), gradient = loss.gradient(broadcast.params, batch)
        weighted = add_gradient(gradients, gradient, batch_weight(loss, batch))
        return weighted, jax.tree.map(jnp.add, metric_sums, sums)

    def finish(broadcast: Broadcast, state: Any, client: Client, context: Context) -> ClientOutput:
        gradients, metric_sums = state
        contributions = {GRADIENT: Contribution(gradient_means(gradients)["mean_gradient"], role=EXACT)}
        return ClientOutput(contributions, metric_sums, (), all_finite(contributions))

    return ClientWork(lambda broadcast, client: (), start, step, finish)
