"""FedDANE (Li et al. 2020): DANE's local problems, with a gradient that a cohort of its own has estimated.

c = Σ w_i ∇F_i(x)                                           phase 1: the gradient of one cohort at the server's weights
y_i ≈ argmin F_i(y) + ⟨c − ∇F_i(x), y⟩ + μ/2 ‖y − x‖²       phase 2: another cohort, local steps from y = x
x ← Σ w_i y_i

A local step has the gradient g_i(y; ζ) − g_i(x; ζ) + c + μ (y − x), both g_i on the same batch ζ: its mean over the
batches is the gradient of the local problem. With all clients in both cohorts, c = 0 at the minimiser and no client
moves, whatever its number of steps.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.methods.mime import AROUND_GRADIENT, GRADIENT, gradient_phase
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named


@named("method")
def feddane(
    client: ClientOptimizer = by_name("sgd"),
    mu: float = 0.01,
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Li et al. 2020: one cohort estimates the gradient, another solves local problems around it.

    A round has two phases, each with a cohort of its own; with all clients per round they are the same. ∇F_i(x) is
    evaluated on the batch of each local step, not on all data of the client first.

    Args:
        mu: μ of the proximal term.
        server: the server's optimizer, one of `ft.server`; SGD with rate 1 takes the mean of the y_i, as published.
        sampling: of both cohorts, one of `ft.sampling`, by name.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.feddane(ft.client.sgd(0.1), mu=0.1)
    >>> len(method.phases)
    2
    """
    if sampling.scoring is not None:
        raise ValueError(
            f"feddane draws two cohorts, and sampling {sampling.name!r} knows the losses of one: use sampling 'uniform'"
        )
    rule = AROUND_GRADIENT._replace(pull=check_float("feddane: mu", mu))
    steps = federated(
        ClientParts(client, trace, correction, rule=rule),
        server,
        sampling,
        weighting,
        init_shared=lambda params: {GRADIENT: jax.tree.map(jnp.zeros_like, params)},
    )
    (solve,) = steps.phases
    return replace(steps, phases=(gradient_phase(), solve._replace(sampling=sampling)))
