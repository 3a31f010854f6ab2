"""Batches: every example once per epoch, in an order that depends on the client alone."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.data.batches import PADDING, OrderShape, _first_of_argsort, client_key, epoch_orders
from fedtrue.federation import batch, batches_of, federation_of


@pytest.mark.parametrize("size", [7, 33])
def test_the_room_for_other_clients_does_not_change_a_clients_order(size):
    key = client_key(0, 3, 5)
    alone = epoch_orders(key, size, OrderShape(size, 3, size)).reshape(3, size)
    beside_a_large_client = epoch_orders(key, size, OrderShape(1000, 3, 33))
    first, later = beside_a_large_client[:size], beside_a_large_client[1000:].reshape(2, 33)[:, :size]
    np.testing.assert_array_equal(alone, np.stack([first, *later]))


@pytest.mark.parametrize("visited", [1, 13, 99, 100, 200])
def test_the_part_of_an_order_that_is_visited_has_the_same_bits_as_the_whole(visited):
    """It is selected, not sorted, where that is less than half; padding and equal random numbers stay in place."""
    for size in (200, 150, 3):
        key = client_key(1, 2, size)
        whole = epoch_orders(key, size, OrderShape(200, 1, 1))
        np.testing.assert_array_equal(epoch_orders(key, size, OrderShape(200, 1, 1, visited)), whole[:visited])


def test_selecting_is_stable_and_exact_at_the_ends_of_the_range():
    bits = np.array([2**31 - 1, 2**30, 0, 2**30 - 1, 0, PADDING, 1, 2**30 + 1, *[PADDING] * 8], np.uint32)
    for count in (1, 5, 7, 8):
        np.testing.assert_array_equal(
            _first_of_argsort(jnp.asarray(bits), count), np.argsort(bits, kind="stable")[:count]
        )


def test_few_local_steps_of_a_large_client_need_little_room():
    clients = [{"x": np.zeros((size, 1), np.float32)} for size in (1000, 30)]
    loss = lambda w, example: (w * example["x"]).sum()
    task = ft.tasks.from_arrays(clients, init=lambda key: jnp.zeros(1), loss=loss, batch_size=10)
    assert federation_of(task, local_steps=4).orders == OrderShape(1000, 2, 30, visited=40)  # 4 steps of 10 of 1000
    scoring = ft.fedopt(ft.client.sgd(0.1), sampling="power_of_choice")  # clients report the loss of all their data
    assert federation_of(task, scoring, local_steps=4).orders == OrderShape(1000, 2, 30, visited=1000)


def test_every_example_is_visited_once_per_epoch_by_small_and_large_clients():
    sizes, batch_size, steps = [3, 50, 7], 4, 13  # 13 steps: 13 epochs of 1 batch, 1 epoch of 13, 6.5 epochs of 2
    clients = [{"x": np.arange(size) + 100.0 * client} for client, size in enumerate(sizes)]
    task = ft.tasks.from_arrays(
        clients, init=lambda key: jnp.zeros(()), loss=lambda w, example: w * example["x"], batch_size=batch_size
    )
    federation = federation_of(task, local_steps=steps)
    assert federation.orders == OrderShape(largest=50, epochs=13, largest_repeated=7, visited=50)
    for client, size in enumerate(sizes):
        batches, per_epoch = batches_of(federation, client, 0, 0), -(-size // batch_size)
        seen = [batch(federation, batches, step) for step in range(steps)]
        rows = [b["x"][b["mask"] == 1].tolist() for b in seen]
        for epoch in range(steps // per_epoch):
            visited = np.concatenate(rows[epoch * per_epoch : (epoch + 1) * per_epoch])
            assert sorted(visited) == (np.arange(size) + 100.0 * client).tolist()
