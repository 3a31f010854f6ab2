"""The assignment of clients to lanes, and the number of lanes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtrue as ft
from fedtrue.engine.capacity import choose_lanes, fewest_lanes, lane_bytes
from fedtrue.engine.schedule import NOBODY, at_work, idle_steps, next_change, pack
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64

packed = jax.jit(pack, static_argnums=1)
ON_A_CPU = [SimpleNamespace(platform="cpu")]  # stand-ins for devices, so that the rule is tested on any machine
ON_A_GPU = [SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 10**11})]


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.integers(1, 50), min_size=8, max_size=8), lanes=st.sampled_from([1, 3, 8]))
def test_every_client_trains_once_and_a_lane_trains_one_client_at_a_time(steps, lanes):
    plan = jax.tree.map(np.asarray, packed(jnp.asarray(steps, jnp.int32), lanes))
    busy = np.zeros((lanes, plan.length.max()), int)
    for lane, start, length in zip(plan.lane, plan.start, steps):
        busy[lane, start : start + length] += 1
    assert busy.max() == 1
    assert busy.sum() == sum(steps)
    assert (busy.sum(1) == plan.length).all()  # no gap before a lane's end
    assert int(idle_steps(plan)) == busy.size - sum(steps)


def test_the_longest_client_goes_first_and_the_next_to_the_lane_that_is_free_soonest():
    plan = packed(jnp.asarray([2, 7, 4, 3], jnp.int32), 2)
    # 7 → lane 0; 4 → lane 1; 3 → lane 1 (free at 4); 2 → lane 0 or 1 (both free at 7): lane 0
    assert plan.lane.tolist() == [0, 0, 1, 1]
    assert plan.start.tolist() == [7, 0, 0, 4]
    assert plan.length.tolist() == [9, 7]
    lanes = jnp.arange(2)
    assert at_work(plan, lanes, 5).tolist() == [1, 3]
    assert int(next_change(plan, lanes, 0)) == 4
    assert int(next_change(plan, lanes, 4)) == 7
    assert int(next_change(plan, lanes, 7)) == 9  # no client starts after this: the end
    assert at_work(plan, jnp.asarray([5]), 0).tolist() == [NOBODY]


def test_fewest_lanes_is_the_smallest_number_that_does_not_lengthen_the_round():
    assert fewest_lanes(np.full(100, 8), 10) == 10  # equal clients: one lane per client
    one_giant = np.array([100] * 50 + [1] * 50)
    assert fewest_lanes(np.array([100, *[1] * 9]), 10) == 2  # nine short clients fit beside the long one
    assert fewest_lanes(one_giant, 1) == 1


def test_on_a_cpu_a_large_model_gets_one_lane_and_a_small_one_a_lane_per_client_or_the_fewest():
    equal, unequal = np.full(10, 8), np.array([100, *[1] * 9])
    small, large = ({"w": jax.ShapeDtypeStruct((n,), jnp.float32)} for n in (10, 10**6))
    lanes = lambda steps, params: choose_lanes(steps, 10, params, 1, ON_A_CPU, None).per_device
    assert (lanes(equal, large), lanes(equal, small), lanes(unequal, small)) == (1, 10, 2)
    nearly_equal = np.array([100] * 9 + [1])  # nine lanes are enough, but one lane per client avoids switching clients
    assert (fewest_lanes(nearly_equal, 10), lanes(nearly_equal, small)) == (9, 10)


def test_many_small_cells_fill_a_cpu_core_like_one_large_model():
    steps, small = np.full(10, 8), {"w": jax.ShapeDtypeStruct((10,), jnp.float32)}
    of = lambda cells: choose_lanes(steps, 10, small, 1, ON_A_CPU, None, cells).per_device
    assert (of(1), of(2000), of(2001)) == (10, 10, 1)  # 10 weights per cell; 20,000 count as small


def test_on_a_gpu_the_size_of_the_model_and_the_number_of_cells_do_not_matter():
    equal, unequal = np.full(10, 8), np.array([100, *[1] * 9])
    large = {"w": jax.ShapeDtypeStruct((10**6,), jnp.float32)}
    of = lambda steps, cells: choose_lanes(steps, 10, large, 1, ON_A_GPU, None, cells).per_device
    assert (of(equal, 1), of(unequal, 1), of(equal, 2001)) == (10, 2, 10)  # one lane per client, or the fewest


def test_lanes_that_do_not_fit_are_refused_with_the_most_that_do():
    steps, params = np.full(4, 3), {"w": jax.ShapeDtypeStruct((10,), jnp.float32)}
    with pytest.raises(ValueError, match=r"4 lanes of 1,000,000.0 MB do not fit .* at most 0 do"):
        choose_lanes(steps, 4, params, 10**12, jax.local_devices(), 4)


def test_a_lane_holds_weights_gradient_accumulator_and_trace():
    task = ft.tasks.from_arrays([{"x": np.ones(1)}], lambda key: {"w": jnp.zeros(1000)}, lambda p, e: p["w"].sum())
    joint = ft.fedopt(ft.client.adagrad(0.1), correction="joint")
    # weights, gradient, v, N: 4 arrays of 4 kB; a byte per weight that has had a gradient; the count of v, and of steps
    assert lane_bytes(task, joint) == 4 * 4000 + 1000 + 4 + 4
    exact = ft.fedopt(ft.client.adagrad(0.1), correction="joint", trace="exact")
    assert lane_bytes(task, exact) == 4 * 4000 + 4
    assert lane_bytes(task, ft.fedopt(ft.client.sgd(0.1), correction="none")) == 2 * 4000


def test_one_compilation_serves_cohorts_of_all_sizes():
    clients = [{"x": np.ones((size, 2), np.float32)} for size in (1, 5, 9, 30, 2, 14)]
    task = ft.tasks.from_arrays(
        clients, lambda key: jnp.zeros(2), lambda p, e: jnp.sum((p - e["x"]) ** 2), batch_size=4
    )
    simulation = Simulation(task, ft.fedopt(ft.client.adagrad(0.1)), cohort=3, lanes=2)
    state = simulation.start()
    for rounds in (1, 4, 2):
        state, infos = simulation.run(state, rounds)
        assert infos.cohort.shape == (rounds, 3)
    assert simulation._run.compilations == 1


def test_cells_of_a_grid_equal_the_same_runs_alone():
    task = ft.tasks.quadratic(noise=0.5)
    rates = [1e-2, 1e-3]
    method_of = lambda rate: ft.fedopt(ft.client.adam(rate))
    with float64():
        simulation = Simulation(task, method_of, grid=jnp.asarray(rates), local_steps=[2, 5], seed=3)
        state, _ = simulation.run(simulation.start(), 4)
        together = np.asarray(state.server.params)
    alone = [ft.train(task, method_of(rate), rounds=4, local_steps=[2, 5], seed=3).params for rate in rates]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
