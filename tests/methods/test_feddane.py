"""FedDANE: one cohort's gradient, then another cohort's local problems around it."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from tests.methods.unequal_clients import HESSIANS, MINIMA, task

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}  # F_1 = (x−1)², F_2 = 2 (x+1)²
STEPS = [1, 7, 3, 2]


def test_one_round_by_hand():
    """From x = 2, η = 0.1, μ = 5; two steps and one step with the gradient g_i(y) − g_i(2) + c + μ (y − 2)."""
    c = (2 * 1 + 4 * 3) / 2  # 7: the mean of ∇F_1(2) = 2 and ∇F_2(2) = 12
    first = 2 - 0.1 * c  # 1.3: at y = x both corrections vanish
    second = first - 0.1 * (2 * (first - 2) + c + 5 * (first - 2))  # 1.3 − 0.1 (−1.4 + 7 − 3.5) = 1.09
    x = (second + first) / 2  # 1.195
    result = ft.train(
        ft.tasks.quadratic(**TWO), ft.methods.feddane(ft.client.sgd(0.1), mu=5.0), rounds=1, local_steps=[2, 1]
    )
    assert result.params == pytest.approx([x], rel=1e-12) and x == pytest.approx(1.195)


def test_many_local_steps_solve_the_local_problem():
    """h_i (y − x) + c + μ (y − x) = 0, so y_i = x − c / (h_i + μ)."""
    c, mu = 7.0, 3.0
    x = 2 - (c / (2 + mu) + c / (4 + mu)) / 2  # 2 − (1.4 + 1) / 2 = 0.8
    method = ft.methods.feddane(ft.client.sgd(0.1), mu=mu)
    result = ft.train(ft.tasks.quadratic(**TWO), method, rounds=1, local_steps=200)
    assert result.params == pytest.approx([x], rel=1e-12) and x == pytest.approx(0.8)


@pytest.mark.parametrize("correction", ["none", "joint"])
def test_with_all_clients_unequal_steps_reach_the_minimiser_at_a_constant_rate(correction):
    """At the minimiser c = Σ w_i ∇F_i = 0, and every local step has the gradient 0."""
    method = ft.methods.feddane(ft.client.sgd(0.01), mu=1.0, correction=correction)
    result = ft.train(task(), method, rounds=1000, local_steps=STEPS)
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-9)
    fedavg = ft.train(task(), ft.methods.fedavg(0.01), rounds=400, local_steps=STEPS).params
    assert np.linalg.norm(fedavg - task().minimiser) > 0.1


def test_each_phase_draws_a_cohort_of_its_own():
    """With one step x' = x − η ∇F_j(x), where j is in the first cohort: the second one decides on later steps only."""
    with float64():
        simulation = ft.Simulation(task(), ft.methods.feddane(ft.client.sgd(0.01)), cohort=1, local_steps=1)
        state, cohorts = simulation.start(), []
        for _ in range(8):
            x = np.asarray(state.params)
            state, info = simulation.round(state)
            j, other = np.asarray(info.cohort)
            expected = x - 0.01 * HESSIANS[j] * (x - MINIMA[j])
            np.testing.assert_allclose(state.params, expected, rtol=1e-12)
            cohorts.append((j, other))
    assert any(j != other for j, other in cohorts)


def test_with_all_clients_and_no_pull_it_is_mime_with_sgd():
    run = lambda method: ft.train(task(noise=1.0), method, rounds=5, local_steps=STEPS, seed=3).params
    dane, mime = run(ft.methods.feddane(ft.client.sgd(0.01), mu=0.0)), run(ft.methods.mime(ft.client.sgd(0.01)))
    np.testing.assert_allclose(dane, mime, rtol=1e-12)


def test_bytes_of_both_phases():
    """Of one weight in float64: up c, then the update; down x, then x and c."""
    method = ft.methods.feddane(ft.client.sgd(0.01))
    history = ft.train(ft.tasks.quadratic(**TWO), method, rounds=1, local_steps=1).history
    assert (history["bytes_up"][0], history["bytes_down"][0]) == (2 * 8 * 2, 2 * 8 * 3)  # 2 clients


def test_diagnosis_refuses_a_round_of_two_phases(tmp_path):
    ft.train(ft.tasks.quadratic(**TWO), ft.methods.feddane(ft.client.sgd(0.1)), rounds=2, out=tmp_path)
    with pytest.raises(ValueError, match="'feddane' cannot be decomposed"):
        ft.diagnose(tmp_path)


def test_a_round_whose_first_cohort_is_empty_steps_by_no_earlier_gradient():
    """Poisson cohorts of one of three expected clients: where nobody sent a gradient, c is 0, and y = x stays there."""
    method = ft.methods.feddane(ft.client.sgd(0.1), sampling="poisson", weighting="uniform")
    three = ft.tasks.quadratic(np.ones((3, 1)), [[1.0], [2.0], [6.0]])
    simulation = ft.Simulation(three, method, cohort=1, local_steps=1)
    state, empty = simulation.start(), 0
    for _ in range(20):
        before = np.asarray(state.server.params)
        state, info = simulation.round(state)
        if info.participants[0] == 0:
            empty += 1
            np.testing.assert_array_equal(state.server.params, before)
    assert empty > 2


def test_samplings_that_look_at_losses_are_refused():
    with pytest.raises(ValueError, match="feddane draws two cohorts"):
        ft.methods.feddane(ft.client.sgd(0.1), sampling="power_of_choice")


def test_a_pull_must_be_a_number_of_at_least_0():
    with pytest.raises(ValueError, match="feddane: mu must be a finite number at least 0, not -1"):
        ft.methods.feddane(ft.client.sgd(0.1), mu=-1)
