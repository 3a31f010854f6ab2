"""FedExP (Jhunjhunwala, Wang and Joshi 2023): the server extrapolates, the further the less clients agree.

    η_g = max(1, Σ w_i ‖Δ_i‖² / (2 (‖Δ̄‖² + ε))),  Δ̄ = Σ w_i Δ_i
    x' = x − η_g Δ̄

w_i are the method's weights over the cohort, which sum to 1; the published algorithm has w_i = 1/M.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.aggregation import WeightedSums, mean
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import Broadcast, Client, Context, Contribution, ServerState
from fedtrue.algorithm.method import Method, ServerStep, federated
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import Array, PyTree

EPSILON = 1e-3  # bounds the step where the mean update vanishes; tune it with the size of the updates


@named("method")
def fedexp(
    client: ClientOptimizer = by_name("sgd"),
    epsilon: float = EPSILON,
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Jhunjhunwala et al. 2023: the server's learning rate of a round from the sizes of the clients' updates.

    With a correction, Δ_i is what the client sends in place of its update. The paper evaluates the mean of the last two
    rounds' weights; here the weights are those of the last round.

    Args:
        epsilon: ε, added to ‖Δ̄‖²; of the size of the squared norm of an update.
        correction: "none", "local", "joint", or an `ft.Correction` that sends "update" and has no table.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fedexp(ft.client.sgd(0.1), epsilon=0.001)
    """
    check_float("fedexp: epsilon", epsilon, open_low=True)
    _check_correction(correction)

    def report(broadcast: Broadcast, memory: Any, steps: Steps, of: Client) -> tuple[dict[str, Contribution], Any]:
        return {"square_norm": Contribution(square_norm(correction.send(steps)["update"]))}, memory

    def update(pseudo_gradient: Any, server: ServerState, sums: WeightedSums, context: Context) -> tuple[Any, Any]:
        of_mean = square_norm(mean(sums, "update"))
        rate = jnp.maximum(1.0, mean(sums, "square_norm") / (2 * (of_mean + epsilon)))
        return jax.tree.map(lambda d: (-rate * d).astype(d.dtype), pseudo_gradient), ()

    clients = ClientParts(client, trace, correction, rule=LocalRule(report=report))
    return federated(clients, ServerStep(lambda params: (), update), sampling, weighting)


def square_norm(tree: PyTree) -> Array:
    """‖Δ‖² over all weights, at least in float32."""
    wide = lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))
    return sum((jnp.sum(wide(leaf) ** 2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def _check_correction(correction: Correction) -> None:
    """Refuses reports that are no updates, and changes of a table."""
    ones = Steps(*(jnp.ones(()) for _ in Steps._fields))
    if correction.table or "update" not in correction.send(ones):
        raise ValueError(
            f"fedexp compares the sizes of updates, which correction {correction.name!r} does not send: use 'none', "
            "'local' or 'joint' without a table"
        )
