"""What clients keep on the host is what an array with a row per client would hold, and only what is needed travels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.engine import planning, store
from fedtrue.engine.capacity import memory_bytes
from fedtrue.engine.store import HostMemory, from_device, to_device, with_rows

CLIENTS, CELLS, WIDTH = 7, 2, 3
ROW_BYTES = 4 * CELLS * WIDTH + 4 * CELLS


def everyone(axis):
    """The first rows of all clients; with axis 1 there are two cells."""
    v = np.arange(CELLS * CLIENTS * WIDTH, dtype=np.float32).reshape(CELLS, CLIENTS, WIDTH)
    steps = np.tile(np.arange(CLIENTS, dtype=np.int32), (CELLS, 1))
    return {"v": v, "steps": steps} if axis == 1 else {"v": v[0], "steps": steps[0]}


def host_memory(axis, asked=None):
    def first_rows(clients):
        if asked is not None and not isinstance(clients, jax.core.Tracer):
            asked.extend(clients.tolist())
        return jax.tree.map(lambda leaf: jnp.take(leaf, clients, axis), everyone(axis))

    return HostMemory(CLIENTS, first_rows, axis)


def taken(tree, rows, axis=0):
    return jax.tree.map(lambda leaf: np.take(np.asarray(leaf), rows, axis), tree)


def doubled(tree):
    return jax.tree.map(lambda leaf: 2 * leaf + 1, tree)


def filled(tree, value):
    return jax.tree.map(lambda leaf: np.full_like(leaf, value), tree)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("rows_at_once", [1, 2, 3, CLIENTS])
@pytest.mark.parametrize("axis", [0, 1])
def test_memory_on_the_host_is_an_array_of_all_clients(axis, rows_at_once, monkeypatch):
    """Rows travel to the device, change there and come back, in blocks of any size, while the memory grows."""
    monkeypatch.setattr(store, "BYTES_AT_ONCE", rows_at_once * ROW_BYTES)
    random, memory, expected = np.random.default_rng(0), host_memory(axis), everyone(axis)
    for count in (1, 2, 3, 5, 2, 7, 4):
        clients = np.sort(random.choice(CLIENTS, count, replace=False))
        buffer, rows = to_device(memory, clients, buffer_rows=CLIENTS)
        own = taken(expected, clients, axis)
        assert_same(taken(buffer, np.asarray(rows)[clients], axis), own)
        from_device(memory, clients, doubled(buffer))
        expected = with_rows(expected, clients, doubled(own), axis)
        assert_same(memory.read(np.arange(CLIENTS)), expected)
    backwards = np.arange(CLIENTS)[::-1]
    assert_same(memory.read(backwards), taken(expected, backwards, axis))


def test_new_clients_do_not_move_the_rows_of_others():
    memory = host_memory(0)
    memory.write(np.array([3, 5]), memory.read(np.array([3, 5])))
    kept = memory.rows[3]["v"]
    memory.write(np.arange(CLIENTS), memory.read(np.arange(CLIENTS)))
    assert memory.rows[3]["v"] is kept


def test_rows_on_the_device_and_rows_that_were_read_do_not_change_with_the_memory():
    """On a CPU an array of JAX may lie in the memory of one of NumPy."""
    memory, clients = host_memory(0), np.array([1, 4])
    for value in (5, 6, 7):
        (buffer, _), read = to_device(memory, clients, 2), memory.read(clients)
        before = jax.tree.map(np.array, read)
        memory.write(clients, filled(read, value))
        assert_same((buffer, read), (before, before))


def test_first_rows_are_computed_only_for_clients_that_never_took_part():
    asked = []
    memory = host_memory(0, asked)
    memory.write(np.array([0, 1, 2]), taken(everyone(0), np.array([0, 1, 2])))
    memory.read(np.array([2, 0]))
    assert asked == []
    memory.read(np.array([1, 5, 0, 6]))
    assert set(asked) == {5, 6}


def test_no_rows_have_the_shapes_of_rows():
    nobody = host_memory(1).read(np.zeros(0, np.int64))
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in nobody.items()} == {
        "v": ((CELLS, 0, WIDTH), np.float32),
        "steps": ((CELLS, 0), np.int32),
    }


HESSIANS = 1.0 + 9.0 * np.random.default_rng(0).random((CLIENTS, WIDTH))
MINIMA = np.random.default_rng(1).normal(size=(CLIENTS, WIDTH))
RATES = jnp.array([0.01, 0.03, 0.1])


def task():
    return ft.tasks.quadratic(HESSIANS, MINIMA, noise=0.5)


def method(rate):
    correction = {"name": "moments", "table": True}
    return ft.fedopt(ft.client.adam(rate), client_state="inherit", correction=correction, server=ft.server.sgd(0.003))


def grid(**settings):
    return ft.Simulation(task(), method, grid=RATES, cohort=3, local_steps=2, **settings)


@pytest.mark.parametrize("rows", [3, 6, CLIENTS])
def test_a_grid_with_memory_on_the_host_has_the_bits_of_one_on_the_device(rows, monkeypatch):
    """Whether the rows of one round fit into the window, of two rounds, or of all clients."""
    monkeypatch.setattr(planning, "WINDOW_BYTES", rows * len(RATES) * memory_bytes(task(), method(0.1)))
    ends = []
    for on_device in (True, False):
        simulation = grid(memory_on_device=on_device)
        state, infos = simulation.run(simulation.start(), 9)  # 27 places for 7 clients: they repeat
        ends.append((simulation.on_host(state, np.arange(CLIENTS)), infos))
    assert simulation.rounds_per_dispatch == {3: 1, 6: 2, CLIENTS: planning.ROUNDS_PER_DISPATCH}[rows]
    assert_same(*ends)


@pytest.mark.parametrize("rounds", [1, 9])
def test_the_buffer_has_no_more_rows_than_there_are_clients(rounds, monkeypatch):
    sizes = []

    def measured(memory, clients, buffer_rows):
        buffer, rows = to_device(memory, clients, buffer_rows)
        sizes.extend(leaf.shape[memory.axis] for leaf in jax.tree.leaves(buffer))
        return buffer, rows

    monkeypatch.setattr("fedtrue.engine.simulation.to_device", measured)
    simulation = grid(memory_on_device=False)
    simulation.run(simulation.start(), rounds)
    assert set(sizes) == {CLIENTS}  # 3 places in each of 1,024 rounds would be 3,072
