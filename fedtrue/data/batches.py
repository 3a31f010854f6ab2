"""Batch order and gathering, as pure functions of addresses: the same on a device, on a host, in any order.

Randomness has an address, not a history: key(seed, round, client), then the epoch (order) or the step (augmentation).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.client_data import Ragged

ORDER, STEP = 0, 1  # what a client's key is folded with first


@partial(jax.tree_util.register_dataclass, data_fields=["values", "splits"], meta_fields=["width"])
@dataclass(frozen=True)
class DeviceRagged:
    """Rows of different length on a device; `width`, the longest row, is part of the compiled shape."""

    values: Any
    splits: Any
    width: int


def round_key(seed: Any, round_index: Any) -> Any:
    return jax.random.fold_in(jax.random.key(seed), round_index)


def client_key(seed: Any, round_index: Any, client: Any) -> Any:
    return jax.random.fold_in(round_key(seed, round_index), client)


def step_key(key: Any, step: Any) -> Any:
    """The key a batch carries, for augmentation or dropout."""
    return jax.random.fold_in(jax.random.fold_in(key, STEP), step)


def epoch_orders(key: Any, size: Any, largest: int, epochs: int, shuffle: bool = True) -> Any:
    """(epochs, largest): in each row a permutation of 0 … size−1 first (or 0 … size−1 itself), then padding."""
    if not shuffle:
        return jnp.broadcast_to(jnp.arange(largest, dtype=jnp.int32), (epochs, largest))
    key = jax.random.fold_in(key, ORDER)

    def order(epoch: Any) -> Any:
        lots = jax.random.bits(jax.random.fold_in(key, epoch), (largest,), jnp.uint32) >> 1
        return jnp.argsort(jnp.where(jnp.arange(largest) < size, lots, jnp.uint32(2**32 - 1))).astype(jnp.int32)

    return jax.vmap(order)(jnp.arange(epochs))


def steps_per_epoch(size: Any, batch_size: int) -> Any:
    return -(-size // batch_size)


def batch_at(
    columns: Mapping[str, Any], start: Any, size: Any, orders: Any, step: Any, batch_size: int, key: Any
) -> dict[str, Any]:
    """The client's batch number `step`; the last of an epoch may be short: `mask` is 0 on its padding."""
    per_epoch = steps_per_epoch(size, batch_size)
    epoch, place = step // per_epoch, (step % per_epoch) * batch_size + jnp.arange(batch_size)
    real = place < size
    chosen = orders[epoch, jnp.minimum(place, orders.shape[1] - 1)]
    rows = start + jnp.where(real, chosen, 0)
    batch = {name: _rows(column, rows) for name, column in columns.items()}
    return {**batch, "mask": real.astype(jnp.result_type(float)), "key": step_key(key, step)}


def _rows(column: Any, rows: Any) -> Any:
    if not isinstance(column, DeviceRagged):
        return column[rows]
    begin, end = column.splits[rows], column.splits[rows + 1]
    place = begin[:, None] + jnp.arange(column.width)
    values = column.values[jnp.minimum(place, column.values.shape[0] - 1)]
    return {"values": values, "mask": place < end[:, None]}


def on_device(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns as JAX arrays."""

    def put(column: Any) -> Any:
        if isinstance(column, Ragged):
            return DeviceRagged(jnp.asarray(column.values), jnp.asarray(column.splits, jnp.int32), column.width)
        return jnp.asarray(np.asarray(column))

    return {name: put(column) for name, column in columns.items()}


def device_rows(columns: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """Some rows of columns that stay on the host (or on disk), as `batch_at` would hand them to a loss."""

    def take(column: Any) -> Any:
        if isinstance(column, Ragged):
            lengths = np.asarray(column.splits[rows + 1]) - np.asarray(column.splits[rows])
            mask = np.arange(column.width) < lengths[:, None]
            return {"values": jnp.asarray(column.padded(rows)), "mask": jnp.asarray(mask)}
        return jnp.asarray(np.asarray(column[rows]))

    return {name: take(column) for name, column in columns.items()}
