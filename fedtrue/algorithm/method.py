"""A method is data: who takes part, what clients do, what the server makes of the sums."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.client_optimizer import ClientOptimizer, common_state
from fedtrue.algorithm.client_update import CLIENT_STATES, DECAY, ClientParts, client_work
from fedtrue.algorithm.correction import Correction, Sent
from fedtrue.algorithm.interface import WEIGHTINGS, Context, Phase, ServerState
from fedtrue.algorithm.report import TRACE
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import Trace
from fedtrue.algorithm.upload import NO_UPLOAD, Upload, upload_options
from fedtrue.algorithm.weighting import Weighting, uniform
from fedtrue.names import look_up
from fedtrue.spec import COMMON_OPTIONS, DESCRIPTIONS, Part, accepts, by_name, from_spec, named, part_options

OWN, TABLE, WEIGHTS = "own", "table", "weights"  # of the correction's state: its own, the mean of all clients' last
# reports, and what it keeps of the cohorts' weights


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Method(Part):
    """A round is a cohort, then each phase in turn; FedAvg has one phase."""

    init: Callable[[Any], ServerState]  # params → the server before round 0
    phases: tuple[Phase, ...]  # of a round, one after another
    sampling: Sampling  # how the first phase draws its cohort
    weighting: Weighting | None  # None: as the task's objective weighs clients
    learning_rate: Callable[[Any], Any]  # round → η, the clients'
    clients: ClientParts | None = None  # what `diagnose` takes apart; None: it cannot
    needs_all_clients: bool = False  # in every round: a smaller cohort is refused
    upload: Upload = NO_UPLOAD  # what happens to contributions on their way to the server

    @property
    def all_phases(self) -> tuple[Phase, ...]:
        """The phases with the method's sampling and upload, after the one in which clients report scores, if any."""
        first = self.phases[0]._replace(sampling=self.sampling)
        scoring = () if self.sampling.scoring is None else (self.sampling.scoring,)
        return (*scoring, *map(self.upload.phase, (first, *self.phases[1:])))


COMMON_OPTIONS["method"] = upload_options  # every method takes them
DESCRIPTIONS["method"] = {  # of options that many methods take
    "client": "the clients' optimizer, one of `ft.client`.",
    "client_rate": "the clients' learning rate, a number, a schedule or a function of the round.",
    "server_rate": "the server's learning rate.",
    "server": "the server's optimizer, one of `ft.server`, or any optax transformation.",
    "correction": '"none", "local", "joint", "moments", a table with options, or an `ft.Correction`.',
    "trace": '"first_gradient", "exact", or "paper" for Algorithm 1\'s.',
    "sampling": 'one of `ft.sampling`, by name, with options as in "poisson" or "optimal(share=0.1)".',
    "weighting": '"uniform", "examples", "tokens" or "batches"; without it, as the task\'s objective weighs clients.',
}


class ServerStep(NamedTuple):
    """A server's step that sees more than the pseudo-gradient: the round, and what clients contribute besides."""

    init: Callable[[Any], Any]  # params → state, kept as the `optimizer` of the `ServerState`
    update: Callable[[Any, ServerState, WeightedSums, Context], tuple[Any, Any]]
    """(pseudo-gradient, server, sums, context) → (what is added to the weights, state)"""


def federated(
    clients: ClientParts,
    server: ServerOptimizer | ServerStep,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
    init_shared: Callable[[Any], Any] = lambda params: (),
    receive_shared: Callable[[ServerState, WeightedSums, Context], Any] = lambda server, sums, context: server.shared,
) -> Method:
    """Local steps in one phase, then a step of the server optimizer: the frame of every method with a single phase.

    Args:
        clients: the clients' optimizer, trace and correction, and the rule that the method adds to their steps.
        server: the server's optimizer, one of `ft.server`, any optax transformation, or a `ServerStep`.
        sampling: one of `ft.sampling`, by name, with options as in "poisson" or "optimal(share=0.1)".
        weighting: "uniform", "examples", "tokens" or "batches"; without it, as the task's objective weighs clients.
        init_shared: params → what the server shares with its clients besides the weights.
        receive_shared: (server, sums, context) → what it becomes after a round.

    Returns:
        A method for `ft.train`, without a name: a function with `@named("method")` gives it one.

    >>> import fedtrue as ft
    >>> clients = ft.interface.ClientParts(ft.client.sgd(0.1), rule=ft.interface.LocalRule(pull=0.5))
    >>> method = ft.interface.federated(clients, ft.server.sgd(1.0))
    >>> ft.train(ft.tasks.quadratic(), method, rounds=2, local_steps=3).summary["rounds"]
    2
    """
    clients, server_step = _built(clients), _server_step(server)
    sampling, weighting = from_spec(sampling, "sampling"), weighting and from_spec(weighting, "weighting")

    def init(params: Any) -> ServerState:
        sampling_state = sampling.uploads.init(params) if sampling.uploads else ()
        correction_state = _init_correction(clients, params)
        return ServerState(params, server_step.init(params), init_shared(params), correction_state, sampling_state)

    def receive(state: ServerState, sums: WeightedSums, context: Context) -> tuple[ServerState, Any]:
        pseudo_gradient, correction_state = received_update(clients, state, sums)
        sampling_state = state.sampling
        if sampling.uploads and sampling.uploads.estimate:
            pseudo_gradient, sampling_state = sampling.uploads.estimate(state, pseudo_gradient, sums)
        updates, optimizer_state = server_step.update(pseudo_gradient, state, sums, context)
        params = optax.apply_updates(state.params, updates)
        shared = receive_shared(state, sums, context)
        if sampling.uploads and sampling.uploads.estimate:  # it steps by an estimate even if nobody has uploaded
            correction_state, shared = _unless_empty(sums, (correction_state, shared), (state.correction, state.shared))
        return ServerState(params, optimizer_state, shared, correction_state, sampling_state), pseudo_gradient

    _check_sampling(sampling, clients)
    _check_correction(clients)
    return Method(
        init=init,
        phases=(Phase(lambda loss: client_work(loss, clients), receive),),
        sampling=sampling,
        weighting=_weighting(sampling, weighting),
        learning_rate=clients.optimizer.learning_rate,
        clients=clients,
    )


@named("method")
def fedopt(
    client: ClientOptimizer = by_name("adagrad"),
    server: ServerOptimizer = by_name("sgd"),
    correction: Correction = by_name("joint"),
    trace: Trace = by_name("first_gradient"),
    client_state: str = "restart",
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Wang et al. 2021: any client and server optimizer, corrected; Algorithm 1, and the choices around it.

    Args:
        client_state: "restart", "sync" or "inherit": where a client's optimizer state comes from.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(client=ft.client.adagrad(learning_rate=0.1), correction="joint")
    >>> method.spec["client"]["name"], method.spec["correction"]
    ('adagrad', 'joint')
    """
    look_up("client_state", CLIENT_STATES, client_state)
    _check_server_rate(server, correction)
    clients = ClientParts(client, trace, correction, client_state)
    if client_state != "sync":
        return federated(clients, server, sampling, weighting)
    return federated(
        clients,
        server,
        sampling,
        weighting,
        init_shared=lambda params: {"optimizer": common_state(client, params)},
        receive_shared=lambda state, sums, context: {"optimizer": aggregation.mean(sums, "optimizer_state")},
    )


def received_update(clients: ClientParts, state: ServerState, sums: WeightedSums) -> tuple[Any, Any]:
    """The pseudo-gradient of a round, weight decay included, and what the correction keeps."""
    correction, kept = clients.correction, state.correction
    present = {name: sums.weights.get(name, jnp.zeros(())) for name in WEIGHTINGS}
    weights, kept_weights = correction.denominator.update(kept[WEIGHTS], present)
    sums = sums._replace(weights={**sums.weights, **weights})
    means = {name: aggregation.mean(sums, name) for name in sums.contributions}
    pseudo_gradient, received = _receive(correction, means, sums, kept)
    if clients.optimizer.options.weight_decay is not None:
        pseudo_gradient = _with_decay(pseudo_gradient, means, correction, state.params)
    return pseudo_gradient, {**received, WEIGHTS: kept_weights}


def _built(clients: ClientParts) -> ClientParts:
    """The clients' parts, of which some may have been given by name."""
    return clients._replace(
        optimizer=from_spec(clients.optimizer, "client"),
        trace=from_spec(clients.trace, "trace"),
        correction=from_spec(clients.correction, "correction"),
    )


def _server_step(server: ServerOptimizer | ServerStep) -> ServerStep:
    """A server optimizer as a step that looks at the pseudo-gradient only."""
    if isinstance(server, ServerStep):
        return server
    optimizer = from_spec(server, "server")
    return ServerStep(
        optimizer.init, lambda d, state, sums, context: optimizer.update(d, state.optimizer, state.params)
    )


def _init_correction(clients: ClientParts, params: Any) -> Any:
    """What the correction keeps, before round 0."""
    optimizer, trace = clients.optimizer, clients.trace

    def no_trace() -> Any:
        memory = trace.init_memory(optimizer, params, clients.rule.pull is not None)
        return trace.total(trace.init(optimizer, params, optimizer.init(params, 0), memory))

    correction = clients.correction
    no_weights = dict.fromkeys(WEIGHTINGS, jnp.zeros(()))
    return {
        OWN: correction.init(params, no_trace),
        TABLE: jax.tree.map(jnp.zeros_like, params) if correction.table else (),
        WEIGHTS: correction.denominator.init(no_weights),
    }


def _receive(correction: Correction, means: Sent, sums: WeightedSums, state: Any) -> tuple[Any, dict[str, Any]]:
    """The pseudo-gradient, and what the correction keeps; with a table, changes are added to c = Σ p_i h_i."""
    name, c = correction.table, state[TABLE]
    if name is not None:
        means = {**means, name: jax.tree.map(jnp.add, means[name], c)}
        c = jax.tree.map(jnp.add, c, aggregation.weighted_sum(sums, name))
    pseudo_gradient, own = correction.receive(means, state[OWN])
    return pseudo_gradient, {OWN: own, TABLE: c}


def _unless_empty(sums: WeightedSums, new: Any, old: Any) -> Any:
    """What is made of the clients' means, and stays as it is without a client."""
    return jax.tree.map(lambda a, b: jnp.where(sums.clients > 0, a, b), new, old)


def _with_decay(pseudo_gradient: Any, means: Mapping[str, Any], correction: Correction, params: Any) -> Any:
    """The server applies the clients' weight decay, which was corrected by itself, to its own weights."""
    decay = {name.removeprefix(DECAY): mean for name, mean in means.items() if name.startswith(DECAY)}
    share, _ = correction.receive(decay, ())
    return jax.tree.map(lambda d, x: d + (share * x).astype(d.dtype), pseudo_gradient, params)


def _check_sampling(sampling: Sampling, clients: ClientParts) -> None:
    """Refuses a client with two memories in one round, and the mean of a table's changes over a choice of clients."""
    if sampling.with_replacement and clients.remembers:
        keeps = (
            "client_state 'inherit'" if clients.client_state == "inherit" else "a method whose clients keep a memory"
        )
        raise ValueError(
            f"sampling {sampling.name!r} may draw a client twice in a round; {keeps} needs sampling 'uniform'"
        )
    if sampling.uploads and clients.correction.table:
        raise ValueError(
            f"sampling {sampling.name!r} chooses who uploads by the updates; correction {clients.correction.name!r} "
            "with a table needs the plain mean of a cohort's changes: use sampling 'uniform'"
        )


def _check_correction(clients: ClientParts) -> None:
    """Refuses what the correction cannot do with these clients."""
    optimizer, correction = clients.optimizer, clients.correction
    if clients.rule.step_term and correction.needs_trace:
        raise ValueError(
            f"correction {correction.name!r} divides what clients moved by their trace, and this method adds a step "
            "that is no gradient of theirs: use correction 'none'"
        )
    if correction.multiplies_by_trace and not optimizer.bounded:
        raise ValueError(
            f"correction {correction.name!r} multiplies a report of gradients by the trace, which small gradients make "
            f"arbitrarily large for this {optimizer.name!r}: set initial_accumulator above 0, or use 'moments'"
        )
    if optimizer.options.weight_decay is not None and correction.needs - {TRACE}:
        raise ValueError(
            f"correction {correction.name!r} reports gradients, which contain no weight decay: leave weight_decay out "
            f"of the clients' {optimizer.name!r}, and let the server decay, e.g. by optax.add_decayed_weights"
        )


def _check_server_rate(server: ServerOptimizer, correction: Correction) -> None:
    """Warns of server SGD's default rate where the correction is made for another. Traced rates were given."""
    rate = part_options(server.spec).get("learning_rate")
    if server.name == "sgd" and isinstance(rate, int | float) and rate == 1 != correction.server_rate:
        warnings.warn(
            f"the default rate of server SGD, 1, is far too large for correction {correction.name!r} on most tasks: "
            f"begin with a server rate of {correction.server_rate}",
            stacklevel=5,
        )


def _weighting(sampling: Sampling, weighting: Weighting | None) -> Weighting | None:
    """Clients that are drawn by their size must not be weighted by it again."""
    if not sampling.in_proportion_to_size:
        return weighting
    if weighting is not None and weighting.name in ("examples", "tokens"):
        warnings.warn(
            f"sampling {sampling.name!r} with weighting {weighting.name!r} counts a client's size twice", stacklevel=5
        )
    return weighting or uniform()


accepts("method", Method, "ft.fedopt(ft.client.adagrad(0.1))")
