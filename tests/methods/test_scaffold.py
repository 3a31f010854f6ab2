"""SCAFFOLD: with a constant rate and deterministic gradients it reaches the minimiser, whoever takes part."""

import jax
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64

HESSIANS = np.array([[1.0, 30.0], [20.0, 1.0], [5.0, 2.0], [3.0, 8.0]])
MINIMA = np.array([[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0], [4.0, 3.0]])
WEIGHTS, STEPS = [0.1, 0.4, 0.2, 0.3], [1, 7, 3, 2]


def task():
    return ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS)


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_unequal_steps_and_weights_reach_the_minimiser_of_the_weighted_objective(option, cohort):
    method = ft.methods.scaffold(ft.client.sgd(0.01), option=option)
    result = ft.train(task(), method, rounds=4000, local_steps=STEPS, cohort=cohort)
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-8)
    fedavg = ft.train(task(), ft.methods.fedavg(0.01), rounds=400, local_steps=STEPS).params
    assert np.linalg.norm(fedavg - task().minimiser) > 0.1


@pytest.mark.parametrize("client", [ft.client.momentum(0.01), ft.client.adagrad(0.005)], ids=["momentum", "adagrad"])
def test_option_ii_holds_for_other_optimizers_through_their_trace(client):
    result = ft.train(task(), ft.methods.scaffold(client, option="II"), rounds=4000, local_steps=STEPS)
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-8)


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_the_servers_control_variate_is_the_weighted_mean_of_the_clients(option, cohort):
    """c = Σ w_i c_i, over all clients, after every round."""
    with float64():
        simulation = Simulation(
            task(), ft.methods.scaffold(ft.client.sgd(0.01), option=option), cohort=cohort, local_steps=STEPS
        )
        state = simulation.start()
        for _ in range(5):
            state, _ = simulation.round(state)
            (memory,) = state.memory
            expected = np.asarray(WEIGHTS) @ np.asarray(memory["rule"])
            np.testing.assert_allclose(state.server.shared, expected, atol=1e-12)
            assert np.abs(expected).max() > 0


def test_one_round_by_hand():
    """F_1 = (x−1)², F_2 = 2 (x+1)², from x = 2 with c = c_1 = c_2 = 0, η = 0.1, one step each, two rounds."""
    two = ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]], start=[2.0])
    first = 2 - 0.1 * (2 * 1 + 4 * 3) / 2  # 1.3; c_i = the gradients 2 and 12, c = 7
    drifts = [2 * 0.3 - 2 + 7, 4 * 2.3 - 12 + 7]  # g_i(1.3) − c_i + c: 5.6, 4.2
    second = first - 0.1 * sum(drifts) / 2  # 1.3 − 0.49 = 0.81
    for option in ("I", "II"):
        result = ft.train(two, ft.methods.scaffold(ft.client.sgd(0.1), option=option), rounds=2, local_steps=1)
        assert result.params == pytest.approx([second])


def test_a_round_at_a_learning_rate_of_0_changes_nothing():
    """Option II divides by η: at the end of a schedule, 0/0 would drop every client."""
    rate = lambda r: 0.01 * (r < 3)
    ends = [ft.train(task(), ft.methods.scaffold(ft.client.sgd(rate)), rounds=n, local_steps=STEPS) for n in (3, 5)]
    np.testing.assert_array_equal(ends[0].params, ends[1].params)
    assert ends[1].history["dropped"].sum() == 0


def test_bytes_count_the_control_variates_both_ways():
    plain, scaffold = (
        ft.train(task(), method, rounds=1, local_steps=1, cohort=2).history
        for method in (ft.methods.fedavg(0.01), ft.methods.scaffold(ft.client.sgd(0.01)))
    )
    for way in ("bytes_up", "bytes_down"):
        assert (plain[way][0], scaffold[way][0]) == (2 * 16, 2 * 32)  # 2 clients × 2 weights × 8 bytes, and as many c's


def test_clients_that_may_be_drawn_twice_are_refused():
    with pytest.raises(ValueError, match=r"'by_size' may draw a client twice.*needs sampling 'uniform'"):
        ft.methods.scaffold(ft.client.sgd(0.1), sampling="by_size")


@pytest.mark.parametrize("rounds", [1, 3])
def test_memory_on_the_host_gives_the_same_bits_as_on_the_device(rounds):
    """The rows of the clients of the next rounds travel; the others stay where they are."""
    noisy = ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS, noise=1.0)
    method = ft.methods.scaffold(ft.client.adam(0.01), option="II", correction="joint")
    with float64():
        ends = []
        for on_device in (True, False):
            simulation = Simulation(
                noisy, method, cohort=2, local_steps=STEPS, lanes=1, seed=1, memory_on_device=on_device
            )
            state = simulation.start()
            for _ in range(0, 9, rounds):
                state, _ = simulation.run(state, rounds)
            ends.append(simulation.on_host(state, np.arange(4)))
    jax.tree.map(np.testing.assert_array_equal, *ends)
