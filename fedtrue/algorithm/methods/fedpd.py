"""FedPD (Zhang et al. 2020): every client minimises its augmented Lagrangian, all communicate in every round.

    y_i ≈ argmin F_i(y) + ⟨λ_i, y − x⟩ + 1/(2s) ‖y − x‖²    local steps from y = x, by any optimizer
    λ_i ← λ_i + (y_i − x) / s                               = −∇F_i(y_i) where the minimum is exact
    x ← Σ p_i (y_i + s λ_i)                                 p_i: the client's share of the objective

With h_i = −λ_i and a = 1/s these are FedDyn's equations, whose server keeps Σ p_i λ_i in place of receiving the λ_i.
The published algorithm has p_i = 1/N, begins local steps where the client's last ones ended, and skips communication
in a share of the rounds.
"""

from dataclasses import replace

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.methods.feddyn import check_no_decay, feddyn
from fedtrue.spec import by_name, named


@named("method")
def fedpd(client: ClientOptimizer = by_name("sgd"), step_size: float = 1.0) -> Method:
    """Zhang et al. 2020: primal-dual local problems of all clients; each keeps one array, and only updates travel.

    Every round needs all clients; `feddyn` is the same method with cohorts. Skipped rounds of communication are not
    included.

    Args:
        client: the clients' optimizer, one of `ft.client`; it solves the local problem from the server's weights.
        step_size: s, the paper's η: the pull to the server's weights has the strength 1/s.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fedpd(ft.client.sgd(0.1), step_size=0.5)
    """
    check_float("fedpd: step_size", step_size, open_low=True)
    check_no_decay("fedpd", client)
    return replace(feddyn(client, alpha=1 / step_size), needs_all_clients=True)
