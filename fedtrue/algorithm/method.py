"""A method is data: who takes part, what clients do, what the server makes of the sums."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedtrue.algorithm import aggregation, client_optimizer
from fedtrue.algorithm import server_optimizer as server_optimizers
from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientWork, Loss, client_work
from fedtrue.algorithm.correction import CORRECTIONS, Correction
from fedtrue.algorithm.sampling import SAMPLINGS, Sampling
from fedtrue.algorithm.server_optimizer import ServerState
from fedtrue.algorithm.trace import TRACES
from fedtrue.names import look_up

CLIENT_STATES = {
    "restart": "every round from the optimizer's constants (the paper's proposal)",
    "sync": "from the weighted mean of last round's preconditioner states; momentum restarts",
    "inherit": "from the client's own last state, kept between rounds",
}
WEIGHTINGS = {
    "uniform": "every client alike",
    "examples": "by the number of examples",
    "tokens": "by the number of tokens",
}


class Phase(NamedTuple):
    """One exchange of a round: clients work, the server takes in the weighted sums of what they send."""

    work: Callable[[Loss], ClientWork]
    receive: Callable[[ServerState, WeightedSums], tuple[ServerState, Any]]  # → (state, the pseudo-gradient used)


class Method(NamedTuple):
    """A round is `sample`, then each phase in turn; `FedAvg` has one."""

    sample: Sampling
    weighting: str | None  # None: what the task says
    learning_rate: Callable[[Any], Any]  # the clients', by round
    init: Callable[[Any], ServerState]
    phases: tuple[Phase, ...]


def fedopt(
    client: ClientOptimizer,
    server: optax.GradientTransformation | None = None,
    correction: str | Correction = "joint",
    trace: str = "exact",
    client_state: str = "restart",
    sampling: str = "uniform",
    weighting: str | None = None,
) -> Method:
    """Federated optimization with any client and server optimizer, corrected: Algorithm 1, and the choices around it.

    >>> from fedtrue.algorithm.client_optimizer import adagrad
    >>> method = fedopt(client=adagrad(learning_rate=0.1), correction="joint")
    """
    chosen = correction if isinstance(correction, Correction) else look_up("correction", CORRECTIONS, correction)()
    chosen_trace = look_up("trace", TRACES, trace)()
    look_up("client_state", CLIENT_STATES, client_state)
    sample = look_up("sampling", SAMPLINGS, sampling)
    if weighting is not None:
        look_up("weighting", WEIGHTINGS, weighting)
    _check_parts(client, server)
    if sampling == "by_size":
        weighting = _weighting_by_size(client_state, weighting)
    optimizer = server or server_optimizers.sgd(1.0)

    def init(params: Any) -> ServerState:
        shared = client.init(params, 0) if client_state == "sync" else ()
        return ServerState(params, optimizer.init(params), shared)

    def receive(state: ServerState, sums: WeightedSums) -> tuple[ServerState, Any]:
        mean = aggregation.mean(sums)
        pseudo_gradient = chosen.receive(mean["correction"])
        updates, optimizer_state = optimizer.update(pseudo_gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        stepped = ServerState(params, optimizer_state, mean.get("shared", ()))
        anyone = sums.clients > 0  # a round with nobody left is skipped
        return jax.tree.map(lambda new, old: jnp.where(anyone, new, old), stepped, state), pseudo_gradient

    def work(loss: Loss) -> ClientWork:
        return client_work(loss, client, chosen_trace, chosen, client_state)

    return Method(sample, weighting, client.learning_rate, init, (Phase(work, receive),))


def _check_parts(client: Any, server: Any) -> None:
    if not isinstance(client, ClientOptimizer):
        names = ", ".join(client_optimizer.CLIENT_OPTIMIZERS)
        raise ValueError(
            f"client must be a client optimizer, e.g. ft.client.adagrad(0.1), not {client!r}; one of: {names}"
        )
    if server is not None and not isinstance(server, optax.GradientTransformation):
        raise ValueError(f"server must be an optax transformation, e.g. ft.server.sgd(1.0), not {server!r}")


def _weighting_by_size(client_state: str, weighting: str | None) -> str:
    if client_state == "inherit":
        raise ValueError(
            "sampling 'by_size' may draw a client twice in a round; client_state 'inherit' needs 'uniform'"
        )
    if weighting in ("examples", "tokens"):
        warnings.warn(f"sampling 'by_size' with weighting {weighting!r} counts a client's size twice", stacklevel=3)
    return weighting or "uniform"
