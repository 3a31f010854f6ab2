"""The order of batches and their rows, as pure functions: the same result on any device and in any order of calls.

Randomness depends on an address, never on earlier calls: (seed, round, client), then the epoch (order of the examples)
or the step (augmentation).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.client_data import Column, Ragged
from fedtrue.types import Array

Scalar = int | Array

PADDING = np.uint32(2**32 - 1)  # in place of the random numbers of places behind a client's examples
ORDER_STREAM, STEP_STREAM = 0, 1  # folded into a client's key first: independent streams for order and steps


@partial(jax.tree_util.register_dataclass, data_fields=["values", "splits"], meta_fields=["width"])
@dataclass(frozen=True)
class DeviceRagged:
    """Rows of different length on a device; `width`, the longest row, is part of the compiled shape."""

    values: Array
    splits: Array
    width: int


DeviceColumn = Array | DeviceRagged


def round_key(seed: Scalar, round_index: Scalar) -> Array:
    """The key of a round."""
    return jax.random.fold_in(jax.random.key(seed), round_index)


def client_key(seed: Scalar, round_index: Scalar, client: Scalar) -> Array:
    """The key of one client in one round."""
    return jax.random.fold_in(round_key(seed, round_index), client)


def step_key(key: Array, step: Scalar) -> Array:
    """The key in a batch, for augmentation or dropout; `key` is the client's."""
    return jax.random.fold_in(jax.random.fold_in(key, STEP_STREAM), step)


class OrderShape(NamedTuple):
    """One compiled shape for all clients' orders: those that pass over their data more than once are often small."""

    largest: int  # examples of the largest client
    epochs: int  # the most passes that a client makes
    largest_repeated: int  # examples of the largest client that makes more than one
    visited: int | None = None  # the most examples that a client visits in its first pass; None: all

    @property
    def first(self) -> int:
        """Room for the first epoch."""
        return self.largest if self.visited is None else self.visited


def epoch_orders(key: Array, size: Scalar, shape: OrderShape, shuffle: bool = True) -> Array:
    """The order of a client's examples in every epoch, one epoch after another.

    Args:
        key: the client's, from `client_key`.
        size: the client's number of examples.
        shape: room for the first epoch, for the others, and how many there are.
        shuffle: False keeps the stored order.

    Returns:
        An int32 array. Each epoch's part starts with a permutation of 0 … size − 1; the rest of it is padding. Later
        epochs mean nothing for a client that is larger than `shape.largest_repeated`. The first epoch's part ends after
        `shape.visited` entries.

    >>> import jax
    >>> epoch_orders(jax.random.key(0), size=2, shape=OrderShape(4, 3, 2), shuffle=False).tolist()
    [0, 1, 2, 3, 0, 1, 0, 1]
    """
    key = jax.random.fold_in(key, ORDER_STREAM)

    def order(epoch: Scalar, room: int, visited: int) -> Array:
        if not shuffle:
            return jnp.arange(visited, dtype=jnp.int32)
        random_bits = jax.random.bits(jax.random.fold_in(key, epoch), (room,), jnp.uint32) >> 1
        return _first_of_argsort(jnp.where(jnp.arange(room) < size, random_bits, PADDING), visited)

    repeated = shape.largest_repeated
    later = jax.vmap(lambda epoch: order(epoch, repeated, repeated))(jnp.arange(1, shape.epochs))
    return jnp.concatenate([order(0, shape.largest, shape.first), later.reshape(-1)])


def _first_of_argsort(bits: Array, count: int) -> Array:
    """The first `count` entries of argsort, of numbers below 2³¹ and PADDING.

    On a CPU XLA selects the smallest of an array of floats up to ten times as fast as it sorts, so the numbers are
    mapped to floats in the same order: normal ones, since a CPU may take all others for 0. Ties keep their order.
    """

    def by_sorting(bits: Array) -> Array:
        return jnp.argsort(bits)[:count].astype(jnp.int32)

    def by_selecting(bits: Array) -> Array:
        half, smallest_normal = jnp.uint32(2**30), jnp.uint32(0x00800000)
        positive = smallest_normal + (bits - half)
        negative = jnp.uint32(0x80000000) | (smallest_normal + (half - 1 - bits))
        floats = jax.lax.bitcast_convert_type(jnp.where(bits >= half, positive, negative), jnp.float32)
        return jax.lax.top_k(jnp.where(bits == PADDING, -jnp.inf, -floats), count)[1]

    if 2 * count > bits.shape[0]:
        return by_sorting(bits)
    return jax.lax.platform_dependent(bits, cpu=by_selecting, default=by_sorting)


def _places(epoch: Array, position: Array, shape: OrderShape) -> Array:
    """Where `epoch_orders` has the examples at these positions of an epoch."""
    later = shape.first + (epoch - 1) * shape.largest_repeated + jnp.minimum(position, shape.largest_repeated - 1)
    return jnp.where(epoch == 0, jnp.minimum(position, shape.first - 1), later)


def steps_per_epoch(size, batch_size: int):
    """⌈size / batch_size⌉, of a number or elementwise of an array."""
    return -(-size // batch_size)


def batch_at(
    columns: Mapping[str, DeviceColumn],
    start: Scalar,
    size: Scalar,
    orders: Array,
    shape: OrderShape,
    step: Scalar,
    batch_size: int,
    key: Array,
) -> dict[str, Any]:
    """The client's batch number `step`, counted over all epochs.

    Args:
        columns: the data, from `on_device`.
        start: the client's first row.
        size: its number of rows.
        orders: from `epoch_orders`.
        shape: of the orders.
        step: counts from 0.
        batch_size: rows per batch. The last batch of an epoch may be short and is padded.
        key: the client's, from `client_key`.

    Returns:
        The rows of every column, `mask` (1 on examples, 0 on padding) and `key` (of this step).
    """
    per_epoch = steps_per_epoch(size, batch_size)
    epoch, position = step // per_epoch, (step % per_epoch) * batch_size + jnp.arange(batch_size)
    is_example = position < size
    chosen = orders[_places(epoch, position, shape)]
    rows = start + jnp.where(is_example, chosen, 0)
    batch = {name: _gather_rows(column, rows) for name, column in columns.items()}
    return {**batch, "mask": is_example.astype(jnp.result_type(float)), "key": step_key(key, step)}


def _gather_rows(column: DeviceColumn, rows: Array) -> Array | dict[str, Array]:
    if not isinstance(column, DeviceRagged):
        return column[rows]
    begin, end = column.splits[rows], column.splits[rows + 1]
    position = begin[:, None] + jnp.arange(column.width)
    values = column.values[jnp.minimum(position, column.values.shape[0] - 1)]
    return {"values": values, "mask": position < end[:, None]}


def on_device(columns: Mapping[str, Column]) -> dict[str, Any]:
    """The columns of `ClientData` as JAX arrays, ragged ones as `DeviceRagged`."""

    def to_device(column: Column) -> DeviceColumn:
        if isinstance(column, Ragged):
            return DeviceRagged(jnp.asarray(column.values), jnp.asarray(column.splits, jnp.int32), column.width)
        return jnp.asarray(np.asarray(column))

    return {name: to_device(column) for name, column in columns.items()}


def device_rows(columns: Mapping[str, Column], rows: np.ndarray) -> dict[str, Any]:
    """Some rows of columns that stay on the host or on disk, in the layout that `batch_at` returns."""

    def gather(column: Column) -> Array | dict[str, Array]:
        if isinstance(column, Ragged):
            lengths = np.asarray(column.splits[rows + 1]) - np.asarray(column.splits[rows])
            mask = np.arange(column.width) < lengths[:, None]
            return {"values": jnp.asarray(column.padded(rows)), "mask": jnp.asarray(mask)}
        return jnp.asarray(np.asarray(column[rows]))

    return {name: gather(column) for name, column in columns.items()}
