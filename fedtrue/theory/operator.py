"""One round with full participation, as an operator on the weights: the map whose fixed points the theory describes.

    A_i(x)             client i's weights after its local steps from x
    pseudo-gradient    the input of the server optimizer; 0 exactly at the method's fixed points
    one round          x → the server's weights after the server optimizer's update

Client updates, aggregation and server update are the functions that training uses, and batches are drawn by the same
keys, so one round here equals one round of the engine. Call and `jit` these functions inside
`with fedtrue.precision.float64():`.
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
from fedtrue.algorithm.trace import Trace, exact
from fedtrue.federation import Federation, batch, batches_of, federation_of, loss_of
from fedtrue.tasks.task import Task
from fedtrue.types import Array, Params, PyTree


def all_clients(
    task: Task,
    method: Method | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Federation:
    """All clients of the task; the weight of a client is multiplied by its probability of being drawn."""
    federation = federation_of(task, method, local_steps, rate_multipliers)
    if method is None:
        return federation
    if method.upload.names:
        raise ValueError(
            f"the theory describes means of what clients compute, and {', '.join(method.upload.names)} changes that: "
            "leave it out"
        )
    if method.sampling.probability is None:
        raise ValueError(
            f"sampling {method.sampling.name!r} has no fixed probability per client, which the theory needs: "
            "use uniform, by_size, poisson or optimal"
        )
    probabilities = jnp.asarray(method.sampling.probability(task.client_weights("examples")))
    weights = federation.weights[METHOD] * (probabilities * len(federation)).astype(jnp.result_type(float))
    return replace(federation, weights={**federation.weights, METHOD: weights})


def initial_params(task: Task, seed: int = 0) -> Params:
    """The task's initial weights, in the precision of the enclosing `float64()`."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), task.init(jax.random.key(seed)))


def one_round(task: Task, method: Method, clients: Federation) -> Callable[..., tuple[ServerState, PyTree]]:
    """`(server, seed, round_index=0)` → the server after one round, and the pseudo-gradient of its last phase.

    The pseudo-gradient is NaN if a client was dropped: a round of the other clients is a different operator.
    """

    def run(server: ServerState, seed: Any, round_index: Any = 0) -> tuple[ServerState, PyTree]:
        pseudo_gradient, dropped = None, 0
        for phase in method.phases:
            context = full_participation(clients, seed, round_index)
            outputs = client_outputs(task, method, phase, clients, server, seed, context)
            weights = clients.weights_of(jnp.arange(len(clients)))
            sums = total(jax.vmap(weigh)(outputs, weights))
            server, pseudo_gradient = aggregation.receive(phase, server, sums, context)
            dropped = dropped + sums.dropped
        return server, jax.tree.map(lambda leaf: jnp.where(dropped > 0, jnp.nan, leaf), pseudo_gradient)

    return run


def full_participation(clients: Federation, seed: Any, round_index: Any = 0) -> Context:
    """The context of a phase in which all clients take part."""
    return Context(round_index, jax.random.key(seed), len(clients), len(clients))


def client_outputs(
    task: Task, method: Method, phase: Phase, clients: Federation, server: ServerState, seed: Any, context: Context
) -> ClientOutput:
    """What every client sends in this phase: `client_update`, vectorised over the clients."""
    work, broadcast = phase.work(loss_of(task, clients, server.params)), phase.broadcast(server, context)
    if jax.tree.leaves((jax.eval_shape(lambda: work.init_memory(broadcast, 0)), server.shared)):
        raise ValueError(
            f"a round of {method.name} is not an operator on the weights alone: its clients or its server keep other "
            "state; use a method without"
        )
    learning_rate = method.learning_rate(context.round)

    def update(index: Any) -> ClientOutput:
        batches = batches_of(clients, index, seed, context.round)
        client = clients.client(index, learning_rate)
        return client_update(work, broadcast, client, (), lambda k: batch(clients, batches, k), context)

    return jax.vmap(update)(jnp.arange(len(clients)))


def round_operator(
    task: Task,
    method: Method,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Callable[..., Any]:
    """One round of a method with full participation, as a function of the weights.

    Args:
        task: whose clients train.
        method: any method whose clients keep no state.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.

    Returns:
        `operate(x, seed=0, round_index=0)` → the weights after one round from the weights x. Given a `ServerState`
        instead of weights it returns a `ServerState`, so that the server optimizer's state is kept between rounds.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> operate = round_operator(task, ft.fedopt(ft.client.sgd(0.5), correction="none"), local_steps=1)
    >>> float(operate(np.array([6.0]))[0])  # 6 − 0.5 · (6 − 2)
    4.0
    """
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
) -> Callable[..., PyTree]:
    """The pseudo-gradient of one round with full participation, as a function of the weights.

    Args:
        task: whose clients train.
        method: any method whose clients keep no state.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.

    Returns:
        `(x, seed=0)` → the input of the server optimizer in a round from the weights x.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> compute = pseudo_gradient(task, ft.fedopt(ft.client.sgd(0.5), correction="none"), local_steps=1)
    >>> float(compute(np.array([6.0]))[0])  # 0.5 · (6 − 2)
    2.0
    """
    run = one_round(task, method, all_clients(task, method, local_steps, rate_multipliers))
    return lambda x, seed=0: run(method.init(x), seed)[1]


def local_operators(
    task: Task,
    optimizer: ClientOptimizer,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Callable[..., Params]:
    """The clients' weights after their local steps, before any correction.

    Args:
        task: whose clients train.
        optimizer: the client optimizer.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.

    Returns:
        `(x, seed=0)` → A_i(x) of every client, stacked along a first axis.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> local_operators(task, ft.client.sgd(0.5), local_steps=1)(np.array([6.0])).tolist()
    [[3.0], [5.0]]
    """
    clients = all_clients(task, None, local_steps, rate_multipliers)
    parts = ClientParts(optimizer, exact(), none())

    def operators(x: Params, seed: Any = 0) -> Params:
        def after_local_steps(client: Array) -> Params:
            state, step = _local_steps(task, parts, clients, x, client, seed)
            return jax.lax.fori_loop(0, clients.steps[client], lambda k, state: step(state, k), state).params

        return jax.vmap(after_local_steps)(jnp.arange(len(clients)))

    return operators


def local_path(
    task: Task, optimizer: ClientOptimizer, clients: Federation, steps: int, trace: Trace | None = None
) -> Callable[..., tuple[ClientState, Params]]:
    """`(x, seed=0)` → clients' states after `steps` steps, and their weights after each step, (clients, steps, …)."""
    parts = ClientParts(optimizer, trace or exact(), local() if trace else none())

    def path(x: Params, seed: Any = 0) -> tuple[ClientState, Params]:
        def path_of(client: Array) -> tuple[ClientState, Params]:
            state, step = _local_steps(task, parts, clients, x, client, seed)

            def advance(state: ClientState, k: Array) -> tuple[ClientState, Params]:
                state = step(state, k)
                return state, state.params

            return jax.lax.scan(advance, state, jnp.arange(steps))

        return jax.vmap(path_of)(jnp.arange(len(clients)))

    return path


def expected(function: Callable[[Params, Any], PyTree], samples: int, seed: int = 0) -> Callable[[Params], PyTree]:
    """The mean of a random function over a fixed set of seeds (common random numbers).

    Args:
        function: of weights and a seed, e.g. `pseudo_gradient(…)`.
        samples: how many seeds.
        seed: different values give disjoint sets of seeds.

    Returns:
        x → mean of `function(x, s)` over the seeds s.

    >>> expected(lambda x, s: x * s, samples=4)(2.0).item()  # 2 · (0 + 1 + 2 + 3) / 4
    3.0
    """
    seeds = sample_seeds(samples, seed)

    def mean(x: Params) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(function, (None, 0))(x, seeds))

    return mean


def sample_seeds(samples: int, seed: int = 0) -> Array:
    """`samples` seeds; the sets for different `seed` are disjoint."""
    return jnp.uint32(seed * samples) + jnp.arange(samples, dtype=jnp.uint32)


def _local_steps(
    task: Task, parts: ClientParts, clients: Federation, x: Params, client: Array, seed: Any
) -> tuple[ClientState, Callable[[ClientState, Any], ClientState]]:
    """A client's state before its first step, and the function that takes its k-th step; in round 0."""
    work: ClientWork = client_work(loss_of(task, clients, x), parts)
    broadcast, batches = Broadcast(x, ()), batches_of(clients, client, seed, 0)
    settings = clients.client(client, parts.optimizer.learning_rate(0))
    rate = settings.rate_multiplier * settings.learning_rate

    def step(state: ClientState, k: Any) -> ClientState:
        return work.step(broadcast, state, batch(clients, batches, k), rate)

    return work.start(broadcast, settings, ()), step
