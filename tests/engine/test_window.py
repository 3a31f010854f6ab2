"""A run with its data on the host, copied to the device one window at a time, equals a run with data on the device."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.data.client_data import Ragged
from fedtrue.engine.simulation import Simulation
from fedtrue.engine.window import Window, window_rounds

RNG = np.random.default_rng(0)
SIZES = (3, 1, 9, 4, 7, 2)
IMAGES = [RNG.normal(size=(size, 2)).astype(np.float32) for size in SIZES]
METHOD = ft.fedopt(ft.client.adagrad(0.1))
WORDS = [[np.arange(1 + row % 4) for row in range(size)] for size in SIZES]  # rows of one to four words


def task():
    """A task whose loss reads both kinds of columns."""

    def loss(params, example):
        words = jnp.sum(example["words"]["values"] * example["words"]["mask"])
        return jnp.sum((params - example["x"]) ** 2) * (1 + words)

    images = ft.ClientData.from_clients([{"x": x} for x in IMAGES])
    words = Ragged.from_rows([row for client in WORDS for row in client])
    clients = replace(images, columns={**images.columns, "words": words})
    return ft.tasks.from_arrays(clients, lambda key: jnp.zeros(2), loss, batch_size=2)


def run(data_on_device):
    simulation = Simulation(task(), METHOD, cohort=3, data_on_device=data_on_device)
    state = simulation.start()
    for rounds in (1, 2, 2):
        state, infos = simulation.run(state, rounds)
    return jax.tree.map(np.asarray, state.server.params), infos


def test_a_run_from_the_host_equals_one_from_the_device_bit_for_bit():
    (on_device, info), (on_host, host_info) = run(True), run(False)
    np.testing.assert_array_equal(on_device, on_host)
    np.testing.assert_array_equal(info.cohort, host_info.cohort)


def test_a_window_has_the_rows_of_its_clients_and_their_start_positions():
    data = task().train
    window = Window(data, places=2, rounds=3)
    columns, starts = window.filled(np.array([[4, 1], [1, 2], [2, 4]]))
    for client in (1, 2, 4):
        rows = np.s_[int(starts[client]) : int(starts[client]) + int(data.sizes[client])]
        np.testing.assert_array_equal(columns["x"][rows], IMAGES[client])
        for row, words in zip(range(rows.start, rows.stop), WORDS[client]):
            begin, end = columns["words"].splits[row : row + 2]
            np.testing.assert_array_equal(columns["words"].values[begin:end], words)


def test_a_windows_size_depends_on_the_bytes_allowed_not_on_the_data():
    data = task().train
    row_bytes = 2 * 4 + 4 * 8 + 4  # x, up to four int64 words, and a split
    rows_per_round = 3 * 9  # the cohort, with every client as large as the largest
    assert window_rounds(data, 3, 1000, window_bytes=5 * rows_per_round * row_bytes) == 5
    assert window_rounds(data, 3, 1000, window_bytes=1) == 1
    assert window_rounds(data, 3, 4, window_bytes=1e9) == 4


def test_another_seed_equals_a_simulation_of_that_seed_bit_for_bit_and_compiles_nothing():
    for data_on_device in (True, False):  # in windows, the one prepared ahead is of the seed before
        other = Simulation(task(), METHOD, cohort=3, seed=5, data_on_device=data_on_device)
        simulation = Simulation(task(), METHOD, cohort=3, data_on_device=data_on_device)
        simulation.run(simulation.start(), 2)
        simulation.seed = 5
        (state, infos), (expected, expected_infos) = (s.run(s.start(), 2) for s in (simulation, other))
        np.testing.assert_array_equal(state.server.params, expected.server.params)
        np.testing.assert_array_equal(infos.cohort, expected_infos.cohort)
        assert simulation._run.compilations == 1


def test_another_seed_is_refused_where_it_decides_how_fast_clients_are():
    simulation = Simulation(task(), METHOD, cohort=3, availability=ft.Availability(deadline=2, speed_spread=1.0))
    with pytest.raises(ValueError, match="make another Simulation"):
        simulation.seed = 1
