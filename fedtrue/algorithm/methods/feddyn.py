"""FedDyn (Acar et al. 2021): a linear term h_i per client makes the server's fixed point that of every client.

    y_i ≈ argmin F_i(y) − ⟨h_i, y⟩ + a/2 ‖y − x‖²       local steps from y = x, by any optimizer
    h_i ← h_i − a (y_i − x)                             = ∇F_i(y_i) where the minimum is exact
    s ← s − a Σ_{i in cohort} p_i (y_i − x)             p_i: the client's share of the objective
    x ← mean over the cohort of y_i − s / a

h_i and s start at 0, so s = Σ p_i h_i over all clients after every round. At a fixed point no h_i changes, so y_i = x:
local steps, of any number, stay at x only if ∇F_i(x) = h_i. Then x = mean y_i − s/a says s = 0, that is
Σ p_i ∇F_i(x) = 0: x minimises the objective with its weights p_i, however the mean over the cohort is weighted. The
published algorithm has p_i = 1/m, of the unweighted objective.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.aggregation import WeightedSums, mean, weighted_sum
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import OBJECTIVE, Broadcast, Client, Context, Contribution, ServerState
from fedtrue.algorithm.method import Method, ServerStep, federated
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import PyTree


@named("method")
def feddyn(
    client: ClientOptimizer = by_name("sgd"),
    alpha: float = 0.1,
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Acar et al. 2021: dynamic regularisation; each client keeps one array, and only updates travel.

    With `weighting` or a correction clients send their uncorrected update too, for the server's s.

    Args:
        alpha: a, the strength of the pull; the server steps by 1/a times the mean gradient term.
        sampling: "uniform": a client that keeps a memory must not be drawn twice.
        weighting: for the mean of the y_i, "uniform", "examples", "tokens" or "batches"; without it, as the task's
            objective.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.feddyn(ft.client.sgd(0.1), alpha=0.1)
    """
    check_float("feddyn: alpha", alpha, open_low=True)
    check_no_decay("feddyn", client)
    is_mean_of_updates = weighting is None and correction.name == "none"  # Σ p_i Δ_i is then in what clients send

    def report(broadcast: Broadcast, h: PyTree, steps: Steps, of: Client) -> tuple[dict[str, Contribution], PyTree]:
        moved = {} if is_mean_of_updates else {"moved": Contribution(steps.pseudo_gradient, OBJECTIVE)}
        return moved, _plus(h, alpha, steps.pseudo_gradient)  # Δ_i = x − y_i

    def update(pseudo_gradient: Any, server: ServerState, sums: WeightedSums, context: Context) -> tuple[Any, Any]:
        s = _plus(server.optimizer, alpha, objective_sum(sums))
        return jax.tree.map(lambda d, s: -(d + (s / alpha).astype(d.dtype)), pseudo_gradient, s), s

    def objective_sum(sums: WeightedSums) -> PyTree:
        """Σ p_i Δ_i over the cohort."""
        return objective_share(sums) if is_mean_of_updates else weighted_sum(sums, "moved")

    zeros = lambda params: jax.tree.map(jnp.zeros_like, params)
    rule = LocalRule(
        pull=alpha,
        term=lambda broadcast, h: jax.tree.map(jnp.negative, h),
        init_memory=lambda broadcast: zeros(broadcast.params),
        report=report,
    )
    clients = ClientParts(client, trace, correction, rule=rule)
    return federated(clients, ServerStep(zeros, update), sampling, weighting)


def check_no_decay(name: str, client: ClientOptimizer) -> None:
    """Refuses weight decay, which would move a client from the minimum of its local problem."""
    if client.options.weight_decay is not None:
        raise ValueError(f"{name}: with weight_decay its fixed point depends on the client's rate: decay in the loss")


def objective_share(sums: WeightedSums) -> PyTree:
    """Σ p_i Δ_i over the cohort, of updates that are weighted as the objective weighs clients."""
    share = sums.weights[OBJECTIVE]
    return jax.tree.map(lambda d: (share * d).astype(d.dtype), mean(sums, "update"))


def _plus(tree: PyTree, factor: Any, other: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: a + (factor * b).astype(a.dtype), tree, other)
