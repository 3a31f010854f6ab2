"""FAdamGC (Chen et al. 2025): local Adam steps whose gradients are corrected before they enter the moments.

    g ← g_i(y) + c − c_i,  then m, v and the step from g        local steps from y = x
    c_i' = τ_i⁻¹ Σ_k g_i(y_k)                                   the mean of the uncorrected gradients along the path
    c ← c + Σ_{i in cohort} w_i (c_i' − c_i)                    w_i: the client's share of the objective

SCAFFOLD with another c_i': its option II divides what the client moved by the trace of its preconditioners, here they
do not enter. For client SGD both are the same.
"""

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.methods.scaffold import with_control_variates
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named


@named("method")
def fadamgc(
    client: ClientOptimizer = by_name("amsgrad"),
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Chen et al. 2025: adaptive clients that track gradients; each keeps one array, moments stay at the client.

    Args:
        client: the clients' optimizer, one of `ft.client`; published with AMSGrad without bias correction.
        sampling: "uniform": a client that keeps a memory must not be drawn twice.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fadamgc(ft.client.amsgrad(0.01, bias_correction=False))
    """
    clients = ClientParts(client, trace, correction, rule=LocalRule(needs_mean_gradient=True))
    mean_gradient = lambda broadcast, control, steps, client: steps.mean_gradient
    return with_control_variates(clients, mean_gradient, server, sampling, weighting)
