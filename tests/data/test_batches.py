"""Batches: every example once per epoch, in an order that depends on the client alone."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.data.batches import OrderShape, client_key, epoch_orders
from fedtrue.federation import batch, batches_of, federation_of


@pytest.mark.parametrize("size", [7, 33])
def test_the_room_for_other_clients_does_not_change_a_clients_order(size):
    key = client_key(0, 3, 5)
    alone = epoch_orders(key, size, OrderShape(size, 3, size)).reshape(3, size)
    beside_a_large_client = epoch_orders(key, size, OrderShape(1000, 3, 33))
    first, later = beside_a_large_client[:size], beside_a_large_client[1000:].reshape(2, 33)[:, :size]
    np.testing.assert_array_equal(alone, np.stack([first, *later]))


def test_every_example_is_visited_once_per_epoch_by_small_and_large_clients():
    sizes, batch_size, steps = [3, 50, 7], 4, 13  # 13 steps: 13 epochs of 1 batch, 1 epoch of 13, 6.5 epochs of 2
    clients = [{"x": np.arange(size) + 100.0 * client} for client, size in enumerate(sizes)]
    task = ft.tasks.from_arrays(
        clients, init=lambda key: jnp.zeros(()), loss=lambda w, example: w * example["x"], batch_size=batch_size
    )
    federation = federation_of(task, local_steps=steps)
    assert federation.orders == OrderShape(largest=50, epochs=13, largest_repeated=7)
    for client, size in enumerate(sizes):
        batches, per_epoch = batches_of(federation, client, 0, 0), -(-size // batch_size)
        seen = [batch(federation, batches, step) for step in range(steps)]
        rows = [b["x"][b["mask"] == 1].tolist() for b in seen]
        for epoch in range(steps // per_epoch):
            visited = np.concatenate(rows[epoch * per_epoch : (epoch + 1) * per_epoch])
            assert sorted(visited) == (np.arange(size) + 100.0 * client).tolist()
