"""Local AdaAlter (Xie et al. 2019): Adagrad whose accumulator changes once per round, for all clients at once.

y ← y − η g_i(y) / √(B² + k ε²),  A_i² ← A_i² + g_i(y)²     local step k = 1, 2, … from y = x and A_i² = B²
x ← Σ w_i y_i,  B² ← Σ w_i A_i²                             the means after the round

k ε² stands for the squares of the round, which B² does not have yet. The preconditioner of step k is the same for all
clients and does not depend on the gradients of the round, so it does not bias them.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer, filled
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import SCALE, STATE, Broadcast, Client, Contribution
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.move import float_type, plain_move
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.schedule import round_schedule
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import exact
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


@named("method")
def adaalter(
    client_rate: LearningRate,
    epsilon: float = 1.0,
    initial_accumulator: float = 1.0,
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Xie et al. 2019: client Adagrad with an accumulator that is averaged with the weights once per round.

    Args:
        client_rate: η, the clients' learning rate, a number, a schedule or a function of the round.
        epsilon: ε, what every local step adds to the root in place of its gradient; above 0.
        initial_accumulator: B² before the first round.
        server: the server's optimizer, one of `ft.server`; SGD with rate 1 takes the mean of the weights, as published.
        correction: "none", "local", "joint", or an `ft.Correction`; the trace is the exact one.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.adaalter(0.5).name
    'adaalter'
    """
    check_float("adaalter: epsilon", epsilon, open_low=True)
    check_float("adaalter: initial_accumulator", initial_accumulator)

    def report(broadcast: Broadcast, memory: Any, steps: Steps, of: Client) -> tuple[dict[str, Contribution], Any]:
        return {"accumulator": Contribution(steps.optimizer["own"], STATE, SCALE)}, memory

    rule = LocalRule(report=report, begin=lambda broadcast: {"optimizer": _before_first_step(broadcast.shared)})
    return federated(
        ClientParts(alternating_adagrad(client_rate, epsilon, initial_accumulator), exact(), correction, rule=rule),
        server,
        sampling,
        weighting,
        init_shared=filled(initial_accumulator),
        receive_shared=lambda state, sums, context: aggregation.mean(sums, "accumulator"),
    )


def alternating_adagrad(client_rate: LearningRate, epsilon: Any, initial_accumulator: Any) -> ClientOptimizer:
    """A'² = A² + g²,  k' = k + 1,  P = 1/√(B² + k' ε²);  B² is A² before the round's first step."""

    def preconditioner(state: dict[str, Any], g: Any) -> Any:
        added = (state["step"] + 1) * epsilon**2
        return jax.tree.map(lambda b: 1.0 / jnp.sqrt(b + added.astype(b.dtype)), state["shared"])

    def precondition(g: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        own = jax.tree.map(lambda a, g: a + g**2, state["own"], g)
        return preconditioner(state, g), {"shared": state["shared"], "own": own, "step": state["step"] + 1}

    return ClientOptimizer(
        round_schedule("adaalter: client_rate", client_rate),
        init=lambda params, client: _before_first_step(filled(initial_accumulator)(params)),
        precondition=precondition,
        preconditioner=preconditioner,
        move=plain_move(),
    )


def _before_first_step(accumulator: Any) -> dict[str, Any]:
    return {"shared": accumulator, "own": accumulator, "step": jnp.zeros((), float_type(accumulator))}
