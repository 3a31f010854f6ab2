"""A round as an operator on the weights, every client taking part: what the fixed points are fixed points of.

    A_i(x)             client i's weights after its local steps from x
    pseudo-gradient    what the method hands its server optimizer; 0 exactly at the method's fixed points
    one round          x → the server's weights after the pseudo-gradient went through its optimizer

The clients' work, the sums and the server's half are the algorithm's own code; batches have the engine's addresses,
so a round here is the engine's round. Call and `jit` these functions inside `with fedtrue.precision.float64():`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.aggregation import total, weigh
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientOutput, ClientState, ClientWork, client_update, client_work
from fedtrue.algorithm.correction import CORRECTIONS
from fedtrue.algorithm.method import Method, Phase
from fedtrue.algorithm.sampling import by_size
from fedtrue.algorithm.server_optimizer import ServerState
from fedtrue.algorithm.trace import exact
from fedtrue.data.batches import batch_at, client_key, epoch_orders, on_device, steps_per_epoch
from fedtrue.tasks.task import Task


class Clients(NamedTuple):
    """All train clients as arrays (they may be traced), and the two numbers the shapes depend on."""

    columns: Any
    starts: Any
    sizes: Any
    steps: Any
    rate_multipliers: Any  # γ_i
    weights: Any  # w_i, up to a factor
    largest: int
    epochs: int


def all_clients(
    task: Task,
    method: Method | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
) -> Clients:
    """The task's clients with their local steps (None: its epochs), rate multipliers (None: 1) and weights.

    A client that a method draws by size weighs as much as it is drawn often.
    """
    sizes = np.asarray(task.train.sizes)
    per_epoch = steps_per_epoch(sizes, task.batch_size)
    steps, gamma = task.steps_of_clients(local_steps), task.multipliers_of_clients(rate_multipliers)
    weights = task.client_weights(method.weighting if method else None)
    drawn = task.client_weights("examples") if method and method.sample is by_size else 1
    return Clients(
        on_device(task.train.columns),
        jnp.asarray(task.train.starts, jnp.int32),
        jnp.asarray(sizes, jnp.int32),
        jnp.asarray(steps, jnp.int32),
        jnp.asarray(gamma, jnp.result_type(float)),
        jnp.asarray(drawn * weights, jnp.result_type(float)),
        largest=int(sizes.max()),
        epochs=int(np.max(-(-steps // per_epoch))),
    )


def initial_params(task: Task, seed: int = 0) -> Any:
    """The task's starting weights, in the precision of the scope."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), task.init(jax.random.key(seed)))


def one_round(task: Task, method: Method, clients: Clients) -> Callable[..., tuple[ServerState, Any]]:
    """`(server, seed, round_index=0)` → the server after a round of everyone, and the last phase's pseudo-gradient.

    The pseudo-gradient is NaN when a client was dropped: a round of the others is another operator.
    """

    def run(server: ServerState, seed: Any, round_index: Any = 0) -> tuple[ServerState, Any]:
        pseudo_gradient, dropped = None, 0
        for phase in method.phases:
            outputs = client_outputs(task, method, phase, clients, server, seed, round_index)
            sums = total(jax.vmap(weigh)(outputs, clients.weights))
            server, pseudo_gradient = phase.receive(server, sums)
            dropped = dropped + sums.dropped
        return server, jax.tree.map(lambda leaf: jnp.where(dropped > 0, jnp.nan, leaf), pseudo_gradient)

    return run


def client_outputs(
    task: Task, method: Method, phase: Phase, clients: Clients, server: ServerState, seed: Any, round_index: Any = 0
) -> ClientOutput:
    """What every client sends in this phase: `client_update`, mapped over the clients."""
    work = phase.work(task.loss)
    if jax.tree.leaves((jax.eval_shape(lambda: work.first_memory(server.params, 0)), server.shared)):
        raise ValueError("a round is an operator on the weights only if clients restart: use client_state='restart'")
    learning_rate = method.learning_rate(round_index)

    def update(client: Any) -> ClientOutput:
        batch = _batches(task, clients, client, seed, round_index)
        no_sums = _no_sums(task, server.params, batch)
        steps, gamma = clients.steps[client], clients.rate_multipliers[client]
        return client_update(work, server, client, (), no_sums, batch, steps, learning_rate, gamma)

    return jax.vmap(update)(jnp.arange(clients.starts.shape[0]))


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
    work = _uncorrected(task, optimizer)

    def operators(x: Any, seed: Any = 0) -> Any:
        def end_of(client: Any) -> Any:
            state, step = _walk(task, work, optimizer, clients, x, client, seed)
            return jax.lax.fori_loop(0, clients.steps[client], lambda k, state: step(state, k), state).params

        return jax.vmap(end_of)(jnp.arange(clients.starts.shape[0]))

    return operators


def local_path(
    task: Task, optimizer: ClientOptimizer, clients: Clients, steps: int, with_trace: bool = False
) -> Callable[..., ClientState]:
    """`(x, seed=0)` → the clients' states after every one of `steps` steps, stacked (clients, steps, …)."""
    work = _uncorrected(task, optimizer, "local" if with_trace else "none")

    def path(x: Any, seed: Any = 0) -> ClientState:
        def path_of(client: Any) -> ClientState:
            state, step = _walk(task, work, optimizer, clients, x, client, seed)

            def advance(state: ClientState, k: Any) -> tuple[ClientState, ClientState]:
                state = step(state, k)
                return state, state

            return jax.lax.scan(advance, state, jnp.arange(steps))[1]

        return jax.vmap(path_of)(jnp.arange(clients.starts.shape[0]))

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


def _uncorrected(task: Task, optimizer: ClientOptimizer, correction: str = "none") -> ClientWork:
    return client_work(task.loss, optimizer, exact(), CORRECTIONS[correction](), "restart")


def _walk(
    task: Task, work: ClientWork, optimizer: ClientOptimizer, clients: Clients, x: Any, client: Any, seed: Any
) -> tuple[ClientState, Callable[[ClientState, Any], ClientState]]:
    """One client at its start, and its step number k; in round 0."""
    server = ServerState(x, (), ())
    batch = _batches(task, clients, client, seed, 0)
    rate = clients.rate_multipliers[client] * optimizer.learning_rate(0)
    state = work.start(server, client, (), _no_sums(task, x, batch))
    return state, lambda state, k: work.step(state, batch(k), rate)


def _batches(task: Task, clients: Clients, client: Any, seed: Any, round_index: Any) -> Callable[[Any], Any]:
    key = client_key(seed, round_index, client)
    start, size = clients.starts[client], clients.sizes[client]
    orders = epoch_orders(key, size, clients.largest, clients.epochs, task.shuffle)
    return lambda k: batch_at(clients.columns, start, size, orders, k, task.batch_size, key)


def _no_sums(task: Task, params: Any, batch: Callable[[Any], Any]) -> Any:
    shapes = jax.eval_shape(lambda: task.loss(params, batch(0))[1])
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
