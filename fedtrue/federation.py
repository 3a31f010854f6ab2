"""The one table of clients, which theory and engine share: their data, and the numbers in which they differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.interface import METHOD, OBJECTIVE, UNIFORM, Client, Loss
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import ClientSizes, client_sizes
from fedtrue.data.batches import OrderShape, batch_at, client_key, epoch_orders, on_device, steps_per_epoch
from fedtrue.tasks.task import Task

ARRAYS = ["columns", "starts", "sizes", "steps", "rate_multipliers", "weights", "sampling_sizes", "constants"]
SHAPE = ["orders", "batch_size", "shuffle"]


@partial(jax.tree_util.register_dataclass, data_fields=ARRAYS, meta_fields=SHAPE)
@dataclass(frozen=True)
class Federation:
    """All train clients. Arrays have one entry per client; a compiled program depends on the last three fields only."""

    columns: Any  # the data, or the part of it that the next rounds need
    starts: Any  # where a client's rows begin
    sizes: Any  # its examples
    steps: Any  # its local steps τ_i
    rate_multipliers: Any  # γ_i
    weights: dict[str, Any]  # weighting of a contribution (METHOD, OBJECTIVE, UNIFORM) → weights
    sampling_sizes: ClientSizes
    constants: Any  # the task's: in every batch, but held once, whatever the number of lanes
    orders: OrderShape  # room for the orders of a client's examples
    batch_size: int  # examples per local step
    shuffle: bool

    def __len__(self) -> int:
        return self.sizes.shape[0]

    def client(self, index: Any, learning_rate: Any) -> Client:
        """What a client knows of itself, in a round with this learning rate."""
        return Client(index, self.steps[index], learning_rate, self.rate_multipliers[index])

    def weights_of(self, index: Any) -> dict[str, Any]:
        """Of a client's contributions, by their weighting."""
        return {weighting: weights[index] for weighting, weights in self.weights.items()}

    def with_columns(self, columns: Any, starts: Any) -> "Federation":
        """The same clients, their rows elsewhere."""
        return replace(self, columns=columns, starts=starts)

    def with_steps(self, steps: np.ndarray) -> "Federation":
        """The same clients, with other numbers of local steps, none of them larger."""
        return replace(self, steps=jnp.asarray(steps, jnp.int32))


class Batches(NamedTuple):
    """One client's batches in a round: `batch(federation, batches, step)`."""

    start: Any
    size: Any
    orders: Any  # its examples in the order of each epoch
    key: Any


def federation_of(
    task: Task,
    method: Method | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    columns: Any = None,
) -> Federation:
    """The task's train clients as `method` weighs them (None: as the task's objective does).

    `local_steps` None: the task's epochs. `columns` None: all data, on the device.
    """
    real = jnp.result_type(float)
    sizes = np.asarray(task.train.sizes)
    steps = task.steps_of_clients(local_steps)
    objective = task.client_weights()
    weighting = method.weighting if method else None
    weights = {
        METHOD: weighting.weights(task) if weighting else objective,
        OBJECTIVE: objective / objective.sum(),
        UNIFORM: np.ones(len(sizes)),
    }
    return Federation(
        columns=on_device(task.train.columns) if columns is None else columns,
        starts=jnp.asarray(task.train.starts, jnp.int32),
        sizes=jnp.asarray(sizes, jnp.int32),
        steps=jnp.asarray(steps, jnp.int32),
        rate_multipliers=jnp.asarray(task.multipliers_of_clients(rate_multipliers), real),
        weights={name: jnp.asarray(values, real) for name, values in weights.items()},
        sampling_sizes=client_sizes(task.client_weights("examples")),
        constants=task.constants,
        orders=_order_shape(sizes, _most_steps(method, sizes, steps, task.examples_per_step), task.examples_per_step),
        batch_size=task.examples_per_step,
        shuffle=task.shuffle,
    )


def _order_shape(sizes: np.ndarray, steps: np.ndarray, batch_size: int) -> OrderShape:
    epochs = -(-steps // steps_per_epoch(sizes, batch_size))
    visited = np.minimum(sizes, steps * batch_size).max()
    return OrderShape(int(sizes.max()), int(epochs.max()), int(sizes[epochs > 1].max(initial=1)), int(visited))


def _most_steps(method: Method | None, sizes: np.ndarray, steps: np.ndarray, batch_size: int) -> np.ndarray:
    """Of each client in any phase: one that reports losses may look at more batches than it trains on."""
    own = [phase.steps for phase in method.all_phases if phase.steps] if method else []
    epoch = steps_per_epoch(sizes, batch_size)
    return np.max([steps, *(np.asarray(of_phase(steps, epoch)) for of_phase in own)], axis=0)


def batches_of(federation: Federation, client: Any, seed: Any, round_index: Any, row: Any = None) -> Batches:
    """A client's batches: the same wherever they are asked for. `row`: where its data is, if not at its number."""
    row = client if row is None else row
    key, size = client_key(seed, round_index, client), federation.sizes[row]
    orders = epoch_orders(key, size, federation.orders, federation.shuffle)
    return Batches(federation.starts[row], size, orders, key)


def batch(federation: Federation, of: Batches, step: Any) -> dict[str, Any]:
    """The batch number `step` of a client."""
    shape, batch_size = federation.orders, federation.batch_size
    rows = batch_at(federation.columns, of.start, of.size, of.orders, shape, step, batch_size, of.key)
    return rows if federation.constants is None else {**rows, "constants": federation.constants}


def loss_of(
    task: Task, federation: Federation, params: Any, function: Callable[[Any, Any], tuple[Any, Any]] | None = None
) -> Loss:
    """The task's loss (or another on the same batches) with the zeros of its metric sums."""
    function = function or task.loss

    def sums() -> Any:
        return function(params, batch(federation, batches_of(federation, 0, 0, 0), 0))[1]

    shapes = jax.eval_shape(sums)
    no_sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return Loss(function, no_sums, task.accumulate, task.summed_loss)
