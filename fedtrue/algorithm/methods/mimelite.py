"""MimeLite (Karimireddy et al. 2021): clients step with the server's optimizer statistics and do not change them.

y ← y − η step(g_i(y), s)                           local steps; s = (v, m) of any client optimizer, held fixed
s ← s updated by Σ w_i ∇F_i(x)                      once per round, by the mean gradient at the server's weights
"""

from dataclasses import replace
from typing import Any

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.client_optimizer import ClientOptimizer, common_state
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import EXACT, Broadcast, Client, Context, Contribution, ServerState
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.move import Move
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named

AT_START = "gradient_at_start"  # what clients send besides what the correction does, which may be a `gradient` too


@named("method")
def mimelite(
    client: ClientOptimizer = by_name("momentum"),
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("none"),
    trace: Trace = by_name("first_gradient"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Karimireddy et al. 2021: the server's momentum and preconditioner, fixed during local steps.

    With bias correction the first round only gathers statistics: it has none to step with.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.methods.mimelite(ft.client.momentum(0.1, beta=0.9))
    """

    def report(broadcast: Broadcast, memory: Any, steps: Steps, of: Client) -> tuple[dict[str, Contribution], Any]:
        return {AT_START: Contribution(steps.gradient_at_start, role=EXACT)}, memory

    def receive_shared(state: ServerState, sums: WeightedSums, context: Context) -> Any:
        return updated_statistics(client, aggregation.mean(sums, AT_START), state.shared)

    rule = LocalRule(needs_gradient_at_start=True, begin=server_statistics, report=report)
    return federated(
        ClientParts(held(client), trace, correction, rule=rule),
        server,
        sampling,
        weighting,
        init_shared=lambda params: first_statistics(client, params),
        receive_shared=receive_shared,
    )


def first_statistics(client: ClientOptimizer, params: Any) -> dict[str, Any]:
    """s before the first round."""
    return {"optimizer": common_state(client, params), "move": client.move.init(params)}


def updated_statistics(client: ClientOptimizer, gradient: Any, shared: dict[str, Any]) -> dict[str, Any]:
    """s, after this gradient has entered it."""
    p, statistics = client.precondition(gradient, shared["optimizer"])
    _, momentum = client.move.step(gradient, p, statistics, shared["move"])
    return {"optimizer": statistics, "move": momentum}


def server_statistics(broadcast: Broadcast) -> dict[str, Any]:
    """The states with which clients begin: s of the server."""
    return {name: broadcast.shared[name] for name in ("optimizer", "move")}


def held(optimizer: ClientOptimizer) -> ClientOptimizer:
    """The optimizer with its statistics held fixed: no gradient enters its state or its momentum."""

    def step(vector: Any, p: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        return optimizer.move.step(vector, p, state, memory)[0], memory

    return replace(
        optimizer,
        precondition=lambda g, state: (optimizer.preconditioner(state, g), state),
        move=Move(optimizer.move.init, step),
    )
