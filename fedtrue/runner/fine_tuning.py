"""Local steps of many clients from the same weights, each evaluated on its own held-out data, several in one program.

One group of clients after another is on the device, with its examples: memory does not grow with the federation.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientParts, client_work
from fedtrue.algorithm.correction import none
from fedtrue.algorithm.interface import Broadcast
from fedtrue.algorithm.trace import exact
from fedtrue.data.batches import OrderShape, batch_at, epoch_orders
from fedtrue.data.client_data import ClientData
from fedtrue.engine.capacity import choose_lanes, tree_bytes
from fedtrue.engine.window import Window
from fedtrue.federation import Federation, batch, batches_of, federation_of, loss_of
from fedtrue.runner.evaluation import sums_of_examples
from fedtrue.tasks.task import Task

MAX_LANES = 64  # clients in one program: more would only lengthen the list of those that wait for the slowest


class FineTuning(NamedTuple):
    """What the clients do: local steps of an optimizer, with the batches of this round of the run."""

    optimizer: ClientOptimizer
    learning_rate: Any  # η; client i steps with γ_i η
    steps: np.ndarray  # of every train client
    rate_multipliers: Any
    seed: int
    round: int


class Group(NamedTuple):
    """Clients that train together: on the device, with their examples."""

    federation: Federation
    held_out: Any  # columns
    clients: Any  # their numbers in the federation: addresses of their batches
    steps: Any
    starts: Any  # of their held-out examples
    sizes: Any


def fine_tuned_sums(
    task: Task, params: Any, how: FineTuning, held_out: ClientData, clients: np.ndarray
) -> Iterator[tuple[Any, Any]]:
    """Group by group, the metric sums of each client before and after its local steps, on its held-out examples.

    `clients[j]` is the number of the train client whose held-out examples are those of client j of `held_out`.
    """
    federation = federation_of(task, None, np.maximum(how.steps, 1).tolist(), how.rate_multipliers, columns={})
    lanes = _lanes(task, how, len(clients))
    train_window, held_out_window = Window(task.train, lanes, 1), Window(held_out, lanes, 1)
    sums = jax.jit(lambda params, group: _sums_of_group(task, how, int(held_out.sizes.max()), params, group))
    for begin in range(0, len(clients), lanes):
        places = np.arange(begin, min(begin + lanes, len(clients)))
        padded = np.resize(places, lanes)
        columns, starts = train_window.filled(clients[places])
        own, own_starts = held_out_window.filled(places)
        group = Group(
            federation.with_columns(columns, starts),
            own,
            jnp.asarray(clients[padded]),
            jnp.asarray(how.steps[clients[padded]], jnp.int32),
            own_starts[padded],
            jnp.asarray(held_out.sizes[padded], jnp.int32),
        )
        # the same program with no steps, so that 0 steps change nothing, not even by rounding
        before = sums(params, group._replace(steps=jnp.zeros_like(group.steps)))
        after = sums(params, group)
        yield _first_rows(before, len(places)), _first_rows(after, len(places))


def _first_rows(sums: Any, clients: int) -> Any:
    """On the host, without the padding of the last group."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[:clients], sums)


def _lanes(task: Task, how: FineTuning, clients: int) -> int:
    """How many clients train in one program: by the engine's rule, for weights, optimizer state and a gradient."""
    params = jax.eval_shape(task.init, jax.random.key(0))
    state = jax.eval_shape(lambda: how.optimizer.init(task.init(jax.random.key(0)), 0))
    lane = 3 * tree_bytes(params) + tree_bytes(state)  # with the move's memory
    return choose_lanes(how.steps, min(clients, MAX_LANES), params, lane, jax.local_devices()[:1], None).per_device


def _sums_of_group(task: Task, how: FineTuning, largest: int, params: Any, group: Group) -> Any:
    """The metric sums of every client of the group after its steps."""
    federation = group.federation
    parts, broadcast = ClientParts(how.optimizer, exact(), none()), Broadcast(params, ())
    work = client_work(loss_of(task, federation, params), parts)

    def of_client(index: Any, steps: Any, start: Any, size: Any) -> Any:
        client = federation.client(index, how.learning_rate)._replace(steps=steps)
        batches, rate = batches_of(federation, index, how.seed, how.round), client.rate_multiplier * how.learning_rate
        step = lambda k, state: work.step(broadcast, state, batch(federation, batches, k), rate)
        tuned = jax.lax.fori_loop(0, steps, step, work.start(broadcast, client, ()))
        return _evaluated(task, tuned.params, group, start, size, largest)

    return jax.vmap(of_client)(group.clients, group.steps, group.starts, group.sizes)


def _evaluated(task: Task, params: Any, group: Group, start: Any, size: Any, largest: int) -> Any:
    """The metric sums over a client's held-out examples, batch by batch."""
    key, length, shape = jax.random.key(0), min(task.evaluation_batch_size, largest), OrderShape(largest, 1, 1)
    orders = epoch_orders(key, size, shape, shuffle=False)

    def sums_of_batch(k: Any) -> Any:
        rows = batch_at(group.held_out, start, size, orders, shape, k, length, key)
        real = rows["mask"] > 0
        examples = {name: value for name, value in rows.items() if name != "key"}
        sums = sums_of_examples(task, params, examples, key, group.federation.constants)
        return jax.tree.map(lambda values: jnp.sum(jnp.where(real, values, 0)), sums)

    no_sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(sums_of_batch, 0))
    add = lambda k, total: jax.tree.map(jnp.add, total, sums_of_batch(k))
    return jax.lax.fori_loop(0, -(-size // length), add, no_sums)
