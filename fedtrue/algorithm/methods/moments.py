"""Moments: clients take any local steps and report what they saw; the server takes its scale from their squares.

    ḡ_i = τ_i⁻¹ Σ_k g_k,  v̄_i = τ_i⁻¹ Σ_k g_k²            along the path of client i's own optimizer
    V ← β V + (1−β) Σ w_i v̄_i,  T ← β T + (1−β) Σ w_i τ_i     divided by 1 − βᵗ
    x ← x − α T Σ w_i ḡ_i / (√V + ε)

E ḡ_i → ∇F_i(x) as η → 0, for any preconditioner and any noise: the preconditioners do not enter what is sent.
"""

from fedtrue.algorithm import correction
from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.report import Report
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


@named("method")
def moments(
    client: ClientOptimizer = by_name("adagrad"),
    server_rate: LearningRate = correction.SERVER_RATE,
    report: Report = by_name("mean_gradient"),
    beta: float = 0.8,
    epsilon: float = correction.EPSILON,
    lagged: bool = False,
    table: bool = False,
    cumulative: bool = False,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Adaptive local steps; clients send the means of their gradients and of their squares. Experimental.

    The same as `fedopt` with the correction "moments" and server SGD. The server's learning rate is per local step, as
    that of an adaptive optimizer without federation.

    Args:
        client: the clients' optimizer, one of `ft.client`; it decides on the path only.
        server_rate: α, the server's learning rate.
        report: "mean_gradient", "intercept" or "update": a client's estimate of its gradient.
        beta: β of the averages V and T over rounds.
        epsilon: ε, added to √V.
        lagged: take V and T from earlier rounds, so that they do not depend on the gradients that they scale.
        table: every client keeps its last report, and the server the mean of all of them (variance reduction).
        cumulative: V is a sum over rounds, as Adagrad's, so steps shrink and noise averages out; α is then larger.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.moments(ft.client.adagrad(0.3), server_rate=0.003).name
    'moments'
    """
    scale = correction.moments(report, beta, epsilon, lagged, table, cumulative)
    return federated(ClientParts(client, correction=scale), server.sgd(server_rate), sampling, weighting)
