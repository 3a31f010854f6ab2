"""A round as an operator on the weights, every client taking part: what the fixed points are fixed points of.

    A_i(x)             client i's weights after its local steps from x
    pseudo-gradient    what the method hands its server optimizer; 0 exactly at the method's fixed points
    one round          x → the server's weights after the pseudo-gradient went through its optimizer

The clients' work, the sums and the server's half are the algorithm's own code; batches have the engine's addresses,
so a round here is the engine's round. Call and `jit` these functions inside `with fedtrue.precision.float64():`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import total, weigh
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, ClientState, client_update, client_work
from fedtrue.algorithm.correction import local, none
from fedtrue.algorithm.interface import METHOD, Broadcast, ClientOutput, ClientWork, Context, Phase, ServerState
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.trace import exact
from fedtrue.federation import Federation, batch, batches_of, federation_of, loss_of
from fedtrue.tasks.task import Task


def all_clients(
    task: Task,
    method: Method | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Federation:
    """The task's clients, all taking part: a client weighs as much as its weight times its chance to be drawn."""
    federation = federation_of(task, method, local_steps, rate_multipliers)
    if method is None:
        return federation
    if method.sampling.probability is None:
        raise ValueError(f"sampling {method.sampling.name!r} has no fixed chance per client: theory cannot weigh them")
    chances = jnp.asarray(method.sampling.probability(task.client_weights("examples")))
    weights = federation.weights[METHOD] * (chances * len(federation)).astype(jnp.result_type(float))
    return replace(federation, weights={**federation.weights, METHOD: weights})


def initial_params(task: Task, seed: int = 0) -> Any:
    """The task's starting weights, in the precision of the scope."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), task.init(jax.random.key(seed)))


def one_round(task: Task, method: Method, clients: Federation) -> Callable[..., tuple[ServerState, Any]]:
    """`(server, seed, round_index=0)` → the server after a round of everyone, and the last phase's pseudo-gradient.

    The pseudo-gradient is NaN when a client was dropped: a round of the others is another operator.
    """

    def run(server: ServerState, seed: Any, round_index: Any = 0) -> tuple[ServerState, Any]:
        pseudo_gradient, dropped = None, 0
        for phase in method.phases:
            context = everyone(clients, seed, round_index)
            outputs = client_outputs(task, method, phase, clients, server, seed, context)
            weights = clients.weights_of(jnp.arange(len(clients)))
            sums = total(jax.vmap(weigh)(outputs, weights))
            server, pseudo_gradient = aggregation.receive(phase, server, sums, context)
            dropped = dropped + sums.dropped
        return server, jax.tree.map(lambda leaf: jnp.where(dropped > 0, jnp.nan, leaf), pseudo_gradient)

    return run


def everyone(clients: Federation, seed: Any, round_index: Any = 0) -> Context:
    """The context of a phase in which all clients take part."""
    return Context(round_index, jax.random.key(seed), len(clients), len(clients))


def client_outputs(
    task: Task, method: Method, phase: Phase, clients: Federation, server: ServerState, seed: Any, context: Context
) -> ClientOutput:
    """What every client sends in this phase: `client_update`, mapped over the clients."""
    work, broadcast = phase.work(loss_of(task, clients, server.params)), phase.broadcast(server, context)
    if jax.tree.leaves((jax.eval_shape(lambda: work.init_memory(broadcast, 0)), server.shared)):
        raise ValueError(
            f"a round of {method.name} is no operator on the weights alone: clients or server keep a state besides them"
        )
    learning_rate = method.learning_rate(context.round)

    def update(index: Any) -> ClientOutput:
        own = batches_of(clients, index, seed, context.round)
        client = clients.client(index, learning_rate)
        return client_update(work, broadcast, client, (), lambda k: batch(clients, own, k), context)

    return jax.vmap(update)(jnp.arange(len(clients)))


def round_operator(
    task: Task,
    method: Method,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Callable[..., Any]:
    """`operate(x, seed=0, round_index=0)`: a round from weights x, or from a ServerState (its optimizer goes on)."""
    run = one_round(task, method, all_clients(task, method, local_steps, rate_multipliers))

    def operate(x: Any, seed: Any = 0, round_index: Any = 0) -> Any:
        if isinstance(x, ServerState):
            return run(x, seed, round_index)[0]
        return run(method.init(x), seed, round_index)[0].params

    return operate


def pseudo_gradient(
    task: Task,
    method: Method,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Callable[..., Any]:
    """`(x, seed=0)` → what the server optimizer is handed in a round from weights x."""
    run = one_round(task, method, all_clients(task, method, local_steps, rate_multipliers))
    return lambda x, seed=0: run(method.init(x), seed)[1]


def local_operators(
    task: Task,
    optimizer: ClientOptimizer,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Callable[..., Any]:
    """`(x, seed=0)` → A_i(x) of every client, stacked: their weights before any correction."""
    clients = all_clients(task, None, local_steps, rate_multipliers)
    parts = ClientParts(optimizer, exact(), none())

    def operators(x: Any, seed: Any = 0) -> Any:
        def end_of(client: Any) -> Any:
            state, step = _local_steps(task, parts, clients, x, client, seed)
            return jax.lax.fori_loop(0, clients.steps[client], lambda k, state: step(state, k), state).params

        return jax.vmap(end_of)(jnp.arange(len(clients)))

    return operators


def local_path(
    task: Task, optimizer: ClientOptimizer, clients: Federation, steps: int, with_trace: bool = False
) -> Callable[..., ClientState]:
    """`(x, seed=0)` → the clients' states after every one of `steps` steps, stacked (clients, steps, …)."""
    parts = ClientParts(optimizer, exact(), local() if with_trace else none())

    def path(x: Any, seed: Any = 0) -> ClientState:
        def path_of(client: Any) -> ClientState:
            state, step = _local_steps(task, parts, clients, x, client, seed)

            def advance(state: ClientState, k: Any) -> tuple[ClientState, ClientState]:
                state = step(state, k)
                return state, state

            return jax.lax.scan(advance, state, jnp.arange(steps))[1]

        return jax.vmap(path_of)(jnp.arange(len(clients)))

    return path


def expected(function: Callable[[Any, Any], Any], samples: int, seed: int = 0) -> Callable[[Any], Any]:
    """x → mean of `function(x, s)` over `samples` seeds s, always the same ones: common random numbers."""
    seeds = sample_seeds(samples, seed)

    def mean(x: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(function, (None, 0))(x, seeds))

    return mean


def sample_seeds(samples: int, seed: int = 0) -> Any:
    """`samples` seeds; those of different `seed` do not meet."""
    return jnp.uint32(seed * samples) + jnp.arange(samples, dtype=jnp.uint32)


def _local_steps(
    task: Task, parts: ClientParts, clients: Federation, x: Any, client: Any, seed: Any
) -> tuple[ClientState, Callable[[ClientState, Any], ClientState]]:
    """One client before its first step, and its step number k; in round 0."""
    work: ClientWork = client_work(loss_of(task, clients, x), parts)
    broadcast, own = Broadcast(x, ()), batches_of(clients, client, seed, 0)
    itself = clients.client(client, parts.optimizer.learning_rate(0))
    rate = itself.rate_multiplier * itself.learning_rate
    return work.start(broadcast, itself, ()), lambda state, k: work.step(broadcast, state, batch(clients, own, k), rate)
