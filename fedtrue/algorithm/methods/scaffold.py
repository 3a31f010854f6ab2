"""SCAFFOLD (Karimireddy et al. 2020): control variates c_i at the clients, c = Σ w_i c_i at the server.

    y ← y − η (g_i(y) − c_i + c)                        local steps from y = x
    c_i' = ∇F_i(x)                                      option I: one more gradient per step, at x
    c_i' = c_i − c + (x − y) / (η N_i)                  option II: N_i = τ_i for SGD, the trace for other optimizers
    c ← c + Σ_{i in cohort} w_i (c_i' − c_i)            w_i: the client's share of the objective

At the minimiser c_i = ∇F_i and c = 0, so no client moves, whatever its number of steps.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.aggregation import WeightedSums, weighted_sum
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import OBJECTIVE, Broadcast, Client, Context, Contribution, ServerState
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.names import look_up
from fedtrue.spec import by_name, named
from fedtrue.types import PyTree

OPTIONS = {"I": "the mean gradient at the server's weights", "II": "the mean of the local gradients"}


@named("method")
def scaffold(
    client: ClientOptimizer = by_name("sgd"),
    option: str = "II",
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Karimireddy et al. 2020: control variates take out the differences between clients; each keeps one array.

    Args:
        option: "I": c_i is the gradient at the server's weights; "II": the mean of the local gradients.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.scaffold(ft.client.sgd(0.1), option="I")
    """
    look_up("scaffold: option", OPTIONS, option)

    def renewed(broadcast: Broadcast, control: PyTree, steps: Steps, client: Client) -> PyTree:
        if option == "I":
            return steps.gradient_at_start
        seen = linear.apply(linear.inverse(steps.trace), steps.pseudo_gradient)
        eta = client.learning_rate

        def of_path(own: PyTree, c: PyTree, s: PyTree) -> PyTree:
            return jnp.where(eta == 0, own, own - c + (s / jnp.where(eta == 0, 1, eta)).astype(own.dtype))

        return jax.tree.map(of_path, control, broadcast.shared, seen)  # at a rate of 0 nothing is seen

    rule = LocalRule(needs_trace=option == "II", needs_gradient_at_start=option == "I")
    clients = ClientParts(client, trace, correction, rule=rule)
    return with_control_variates(clients, renewed, server, sampling, weighting)


def with_control_variates(
    clients: ClientParts,
    renewed: Callable[[Broadcast, PyTree, Steps, Client], PyTree],
    server: ServerOptimizer,
    sampling: Sampling,
    weighting: Weighting | None,
) -> Method:
    """Every gradient gets c − c_i; `renewed(broadcast, c_i, steps, client)` is c_i', and c ← c + Σ w_i (c_i' − c_i)."""
    zeros = lambda params: jax.tree.map(jnp.zeros_like, params)

    def report(
        broadcast: Broadcast, control: PyTree, steps: Steps, client: Client
    ) -> tuple[dict[str, Contribution], PyTree]:
        new = renewed(broadcast, control, steps, client)
        return {"control_change": Contribution(jax.tree.map(jnp.subtract, new, control), OBJECTIVE)}, new

    def receive_shared(state: ServerState, sums: WeightedSums, context: Context) -> PyTree:
        return jax.tree.map(jnp.add, state.shared, weighted_sum(sums, "control_change"))

    rule = clients.rule._replace(
        term=lambda broadcast, control: jax.tree.map(jnp.subtract, broadcast.shared, control),
        init_memory=lambda broadcast: zeros(broadcast.params),
        report=report,
    )
    return federated(clients._replace(rule=rule), server, sampling, weighting, zeros, receive_shared)
