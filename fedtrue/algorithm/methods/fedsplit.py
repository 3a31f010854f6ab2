"""FedSplit (Pathak and Wainwright 2020): Peaceman-Rachford splitting, a proximal step of every client per round.

    y_i ≈ prox_{s F_i}(2x − z_i) = argmin F_i(y) + 1/(2s) ‖y − 2x + z_i‖²    local steps from y = x, by any optimizer
    z_i ← z_i + 2 (y_i − x)
    x ← Σ p_i z_i                                                            p_i: the client's share of the objective

All z_i start at x. The local problem is a proximal term around x, and the linear term (z_i − x)/s. At a fixed point no
z_i changes, so y_i = x: local steps, of any number, stay at x only if ∇F_i(x) = (x − z_i)/s. With x = Σ p_i z_i that
is Σ p_i ∇F_i(x) = 0. The published algorithm has p_i = 1/m.
"""

from dataclasses import replace
from typing import Any

import jax

from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.interface import Broadcast, Client, Context, Contribution, ServerState
from fedtrue.algorithm.method import Method, ServerStep, federated
from fedtrue.algorithm.methods.feddyn import check_no_decay, objective_share
from fedtrue.algorithm.report import Steps
from fedtrue.spec import by_name, named
from fedtrue.types import PyTree


@named("method")
def fedsplit(client: ClientOptimizer = by_name("sgd"), step_size: float = 1.0) -> Method:
    """Pathak and Wainwright 2020: operator splitting over all clients; each keeps one array, only updates travel.

    Every round needs all clients.

    Args:
        client: the clients' optimizer, one of `ft.client`; it solves the local problem from the server's weights.
        step_size: s of the proximal step; 1/√(ℓ L) for losses with curvatures between ℓ and L.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fedsplit(ft.client.sgd(0.1), step_size=0.5)
    """
    check_float("fedsplit: step_size", step_size, open_low=True)
    check_no_decay("fedsplit", client)

    def term(broadcast: Broadcast, z: PyTree) -> PyTree:
        return jax.tree.map(lambda z, x: ((z - x) / step_size).astype(z.dtype), z, broadcast.params)

    def report(broadcast: Broadcast, z: PyTree, steps: Steps, of: Client) -> tuple[dict[str, Contribution], PyTree]:
        return {}, jax.tree.map(lambda z, d: z - 2 * d, z, steps.pseudo_gradient)  # Δ_i = x − y_i

    def update(pseudo_gradient: Any, server: ServerState, sums: WeightedSums, context: Context) -> tuple[Any, Any]:
        # Σ p_i z_i' = x − 2 Σ p_i Δ_i, also if some clients do not reply and keep their z_i
        return jax.tree.map(lambda d: -2 * d, objective_share(sums)), ()

    rule = LocalRule(pull=1 / step_size, term=term, init_memory=lambda broadcast: broadcast.params, report=report)
    method = federated(ClientParts(client, rule=rule), ServerStep(lambda params: (), update))
    return replace(method, needs_all_clients=True)
