"""FedNova (Wang, Liu, Liang, Joshi and Poor 2020): every client's update divided by the weight of its own gradients.

    Δ_i = η Σ_k a_{i,k} g_k,  N_i = ‖a_i‖₁ = Σ_k a_{i,k}
    x' = x − τ_eff Σ w_i Δ_i / N_i,  τ_eff = Σ w_i N_i

N_i is the exact trace: τ_i for SGD, Σ_k (1 − β^k)/(1 − β) for heavy ball, Σ_k (1 − η μ)^k with a proximal term. It is
the correction `local`, multiplied by τ_eff, so that a round moves about as far as FedAvg's.
"""

import jax

from fedtrue.algorithm import linear
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction, Sent
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.report import TRACE, Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import exact
from fedtrue.algorithm.weighting import Weighting
from fedtrue.names import look_up
from fedtrue.spec import by_name, named
from fedtrue.types import PyTree

TAU_EFF = {"mean": "the weighted mean of N_i"}


@named("method")
def fednova(
    client: ClientOptimizer = by_name("sgd"),
    mu: float = 0.0,
    tau_eff: float | str = "mean",
    server: ServerOptimizer = by_name("sgd"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Wang et al. 2020: normalised averaging, for clients with SGD, momentum or a proximal term and unequal steps.

    The same as `fedopt` with the trace "exact", the correction "local" and a server rate of τ_eff. Adaptive clients,
    whose N_i is not a number, are refused: `fedopt` with a correction is FedNova for them.

    Args:
        client: the clients' optimizer, `ft.client.sgd` or `ft.client.momentum`.
        mu: μ of a proximal term, as FedProx has it.
        tau_eff: "mean": the weighted mean of the cohort's N_i; or a number.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.fednova(ft.client.momentum(0.1, beta=0.9, dampening=0.0), mu=0.01)
    """
    if client.adaptive or not client.diagonal or client.options.clip_value is not None:
        what = "clip_value" if client.options.clip_value is not None else repr(client.name)
        raise ValueError(
            f"fednova divides a client's update by one number, and {what} has one per weight: use method fedopt with "
            "correction 'local' or 'joint'"
        )
    rule = LocalRule(pull=check_float("fednova: mu", mu))
    return federated(ClientParts(client, exact(), normalised(tau_eff), rule=rule), server, sampling, weighting)


def normalised(tau_eff: float | str) -> Correction:
    """τ_eff mean(Δ_i / N_i); the same N_i for all weights, so it is sent once."""
    by_mean = isinstance(tau_eff, str)
    if isinstance(tau_eff, str):
        look_up("fednova: tau_eff", TAU_EFF, tau_eff)
    else:
        check_float("fednova: tau_eff", tau_eff, open_low=True)

    def send(steps: Steps) -> Sent:
        update = linear.apply(linear.inverse(steps.trace), steps.pseudo_gradient)
        return {"update": update, "trace": jax.tree.leaves(steps.trace)[0]} if by_mean else {"update": update}

    def receive(mean: Sent, state: PyTree) -> tuple[PyTree, PyTree]:
        factor = mean["trace"] if by_mean else tau_eff
        return jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), mean["update"]), state

    # τ_eff multiplies the mean update: if both had a random denominator, it would enter squared
    return Correction(send, receive, needs=frozenset({TRACE}), means=frozenset({"trace"} if by_mean else ()))
