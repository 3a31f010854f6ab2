"""FedDyn: with a constant rate it reaches the minimiser of the weighted objective, whatever the number of steps."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from tests.methods.unequal_clients import HESSIANS, MINIMA, STEPS, WEIGHTS, task

ALPHA = 10.0


@pytest.mark.parametrize("options", [{}, {"weighting": "uniform"}], ids=["objective", "uniform"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_unequal_steps_and_weights_reach_the_minimiser_of_the_weighted_objective(options, cohort):
    """The weights of the mean decide on the path only: s = Σ p_i h_i = 0 at the fixed point."""
    method = ft.methods.feddyn(ft.client.sgd(0.01), alpha=ALPHA, **options)
    result = ft.train(task(), method, rounds=1000, local_steps=STEPS, cohort=cohort)
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-8)
    fedavg = ft.train(task(), ft.methods.fedavg(0.01), rounds=400, local_steps=STEPS).params
    assert np.linalg.norm(fedavg - task().minimiser) > 0.1


@pytest.mark.parametrize("client", [ft.client.momentum(0.01), ft.client.adagrad(0.005)], ids=["momentum", "adagrad"])
@pytest.mark.parametrize("correction", ["none", "joint"])
def test_other_optimizers_and_corrections_have_the_same_fixed_point(client, correction):
    """Where ∇F_i(x) = h_i no optimizer moves; a correction of updates that are all 0 is 0."""
    method = ft.methods.feddyn(client, alpha=ALPHA, correction=correction)
    result = ft.train(task(), method, rounds=2000, local_steps=STEPS)
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"weighting": "uniform"}, {"correction": "joint"}], ids=str)
@pytest.mark.parametrize("cohort", [4, 2])
def test_the_servers_term_is_the_weighted_mean_of_the_clients(options, cohort):
    """s = Σ p_i h_i, over all clients, after every round."""
    with float64():
        method = ft.methods.feddyn(ft.client.sgd(0.01), alpha=ALPHA, **options)
        simulation = Simulation(task(), method, cohort=cohort, local_steps=STEPS)
        state = simulation.start()
        for _ in range(3):
            state, _ = simulation.round(state)
            (memory,) = state.memory
            expected = np.asarray(WEIGHTS) @ np.asarray(memory["rule"])
            np.testing.assert_allclose(state.server.optimizer, expected, atol=1e-12)
            assert np.abs(expected).max() > 0


def test_the_clients_term_is_its_gradient_where_its_local_problem_is_solved():
    """0 = ∇F_i(y_i) − h_i + a (y_i − x), so h_i' = h_i − a (y_i − x) = ∇F_i(y_i) = H_i (y_i − m_i)."""
    with float64():
        method = ft.methods.feddyn(ft.client.sgd(0.02), alpha=ALPHA)
        simulation = Simulation(task(), method, local_steps=400)
        state, _ = simulation.round(simulation.start())
        y = (HESSIANS * MINIMA + ALPHA * np.asarray(task().start)) / (HESSIANS + ALPHA)  # from h_i = 0
        np.testing.assert_allclose(state.memory[0]["rule"], HESSIANS * (y - MINIMA), atol=1e-10)


def test_two_rounds_by_hand():
    """F_1 = (x−1)², F_2 = 2 (x+1)², from x = 2 with s = h_1 = h_2 = 0; η = 0.1, a = 5, two steps each."""
    eta, a, x, s, h = 0.1, 5.0, 2.0, 0.0, [0.0, 0.0]
    for _ in range(2):
        ends = []
        for client, (hessian, minimum) in enumerate(((2.0, 1.0), (4.0, -1.0))):
            y = x
            for _ in range(2):
                y = y - eta * (hessian * (y - minimum) - h[client] + a * (y - x))
            h[client] = h[client] - a * (y - x)
            ends.append(y)
        s = s - a * (np.mean(ends) - x)  # (1/m) Σ (y_i − x)
        x = np.mean(ends) - s / a
    two = ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]], start=[2.0])
    result = ft.train(two, ft.methods.feddyn(ft.client.sgd(eta), alpha=a), rounds=2, local_steps=2)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_half_a_cohort_adds_its_share_of_the_objective_to_the_servers_term():
    """One of two equal clients: Δ = η h (x − m), s = a Δ / 2, x' = x − Δ − s/a = x − 1.5 Δ."""
    two = ft.tasks.quadratic([[2.0], [2.0]], [[1.0], [1.0]], start=[2.0])
    result = ft.train(two, ft.methods.feddyn(ft.client.sgd(0.1), alpha=5.0), rounds=1, local_steps=1, cohort=1)
    assert result.params == pytest.approx([2 - 1.5 * 0.1 * 2 * 1])  # 1.7


def test_only_the_update_travels_unless_the_mean_has_other_weights():
    def traffic(**options):
        method = ft.methods.feddyn(ft.client.sgd(0.01), alpha=ALPHA, **options)
        history = ft.train(task(), method, rounds=1, local_steps=1, cohort=2).history
        return history["bytes_up"][0], history["bytes_down"][0]

    assert traffic() == (2 * 16, 2 * 16)  # 2 clients × 2 weights × 8 bytes: s stays at the server, h_i at the client
    assert traffic(weighting="uniform") == (2 * 32, 2 * 16)


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(on_device, tmp_path, monkeypatch):
    if not on_device:
        monkeypatch.setattr("fedtrue.engine.planning.MEMORY_SHARE", 0.0)
    arguments = {"cohort": 2, "local_steps": STEPS, "checkpoint_every": 4, "lanes": 1, "seed": 1}
    method = ft.methods.feddyn(ft.client.adam(0.01), alpha=ALPHA)
    whole = ft.train(task(noise=1.0), method, rounds=9, **arguments)
    ft.train(task(noise=1.0), method, rounds=6, out=tmp_path / "run", **arguments)
    parts = ft.train(task(noise=1.0), method, rounds=9, out=tmp_path / "run", resume=True, **arguments)
    np.testing.assert_array_equal(parts.params, whole.params)


def test_diagnosis_finds_that_a_run_with_unequal_steps_has_converged(tmp_path):
    ft.train(task(), ft.methods.feddyn(ft.client.sgd(0.01), alpha=ALPHA), rounds=500, local_steps=STEPS, out=tmp_path)
    verdict = ft.diagnose(tmp_path, orders=2).verdict
    assert not verdict.biased and "has converged" in verdict.sentence


def test_what_has_no_such_fixed_point_is_refused():
    with pytest.raises(ValueError, match=r"'by_size' may draw a client twice.*needs sampling 'uniform'"):
        ft.methods.feddyn(ft.client.sgd(0.1), sampling="by_size")
    with pytest.raises(ValueError, match="feddyn: with weight_decay its fixed point depends on the client's rate"):
        ft.methods.feddyn(ft.client.sgd(0.1, weight_decay=0.1))
    with pytest.raises(ValueError, match="feddyn: alpha must be a finite number above 0, not 0"):
        ft.methods.feddyn(ft.client.sgd(0.1), alpha=0)
