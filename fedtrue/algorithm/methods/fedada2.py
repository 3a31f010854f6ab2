"""FedAda² (Lee et al. 2025): adaptive clients and an adaptive server, between which no preconditioner travels.

v = 0, then local steps of an adaptive optimizer              every client, in every round
x ← x − α M / (√V + ε_s)                                      server Adam, with M and V of the mean updates

It is `fedopt` with client state "restart" and server Adam; `correction` is what this library adds.
"""

from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


@named("method")
def fedada2(
    client: ClientOptimizer = by_name("adam"),
    server_rate: LearningRate = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = server.EPSILON,
    bias_correction: bool = True,
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Lee et al. 2025: client Adam with a new state per round, server Adam; messages are those of FedAvg.

    Args:
        client: the clients' optimizer, one of `ft.client`; published ones start at v = 0 (`initial_accumulator`).
        server_rate: α, the server's learning rate.
        beta1: β₁ of the server's momentum.
        beta2: β₂ of its squared pseudo-gradients.
        epsilon: ε_s, added to the root.
        bias_correction: correct the server's moments for their start at 0.
        correction: "none" as published, "local", "joint", or an `ft.Correction`.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fedada2(ft.client.adam(0.001), server_rate=0.1)
    """
    adam = server.adam(server_rate, beta1, beta2, epsilon, bias_correction=bias_correction)
    return federated(ClientParts(client, trace, correction), adam, sampling, weighting)
