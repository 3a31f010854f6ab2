"""FedProx (Li et al. 2020): every client minimises F_i(y) + μ/2 ‖y − x‖²."""

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named


@named("method")
def fedprox(
    client: ClientOptimizer = by_name("sgd"),
    mu: float = 0.01,
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Li et al. 2020: a proximal term of strength mu keeps clients near the server's weights.

    With any client optimizer and correction; the exact trace accounts for the pull.

    Args:
        mu: μ, the strength of the pull.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fedprox(ft.client.sgd(0.1), mu=0.1)
    """
    rule = LocalRule(pull=check_float("fedprox: mu", mu))
    return federated(ClientParts(client, trace, correction, rule=rule), server, sampling, weighting)
