"""FAdamGC: gradients are corrected before the moments; a client's variate is the mean of its own gradients."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from tests.methods.unequal_clients import WEIGHTS, task

STEPS = [2, 7, 4, 3]
TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}  # F_1 = (x−1)², F_2 = 2 (x+1)²
CLIENTS, W = ((2.0, 1.0, 2), (4.0, -1.0, 3)), np.array([0.25, 0.75])  # h_i, m_i and τ_i; w_i
ETA, BETA1, BETA2, EPSILON = 0.1, 0.5, 0.9, 0.01


def local_steps(h, minimum, steps, y, correction):
    """AMSGrad on g + c − c_i from m = v = u = 0, without bias correction; and the mean of the g."""
    m = v = u = total = 0.0
    for _ in range(steps):
        own = h * (y - minimum)
        g = own + correction
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
        u, total = max(u, v), total + own
        y = y - ETA * m / (np.sqrt(u) + EPSILON)
    return y, total / steps


def test_three_rounds_by_hand():
    """c = c_1 = c_2 = 0 at first; all take part, so c = Σ w_i c_i is the mean of the clients' mean gradients."""
    x, own = 2.0, np.zeros(2)
    client = ft.client.amsgrad(ETA, BETA1, BETA2, EPSILON, bias_correction=False)
    with float64():
        simulation = Simulation(ft.tasks.quadratic(**TWO, weights=W), ft.methods.fadamgc(client), local_steps=[2, 3])
        state = simulation.start()
        for _ in range(3):
            done = [local_steps(*of, x, W @ own - own[i]) for i, of in enumerate(CLIENTS)]
            ends, own = (np.array(column) for column in zip(*done))
            x = W @ ends
            state, _ = simulation.round(state)
            assert state.params == pytest.approx([x], rel=1e-12)
            assert state.server.shared == pytest.approx([W @ own], rel=1e-12)
            np.testing.assert_allclose(state.memory[0]["rule"], own[:, None], rtol=1e-12)


def test_the_first_step_by_hand():
    """g = 2, m = 1, v = 0.1 · 4 = 0.4: y = 2 − 0.1 · 1 / (√0.4 + 0.01); c = c_1 = 2."""
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[2.0])
    client = ft.client.amsgrad(ETA, BETA1, BETA2, EPSILON, bias_correction=False)
    result = ft.train(one, ft.methods.fadamgc(client), rounds=1, local_steps=1)
    assert result.params == pytest.approx([2 - 0.1 / (np.sqrt(0.4) + 0.01)], rel=1e-12)  # 1.8443


def test_with_client_sgd_it_is_scaffold():
    """Option II: c_i − c + Δ/(η τ) is the mean of the uncorrected gradients."""
    run = lambda method: ft.train(task(noise=1.0), method, rounds=9, local_steps=STEPS, cohort=2, seed=3).params
    tracked, scaffold = run(ft.methods.fadamgc(ft.client.sgd(0.01))), run(ft.methods.scaffold(ft.client.sgd(0.01)))
    np.testing.assert_allclose(tracked, scaffold, rtol=1e-10)


@pytest.mark.parametrize("correction", ["none", "joint"])
def test_unequal_adaptive_steps_reach_the_minimiser_at_a_constant_rate(correction):
    """There c_i = ∇F_i and c = 0: no client moves. v starts above 0, else Adam's steps do not shrink with gradients."""
    client = ft.client.amsgrad(0.01, initial_accumulator=1.0, bias_correction=False)
    method = ft.methods.fadamgc(client, correction=correction)
    result = ft.train(task(), method, rounds=4000, local_steps=STEPS)
    np.testing.assert_allclose(result.params, task().minimiser, atol=1e-8)
    plain = ft.train(task(), ft.fedopt(client, correction="none"), rounds=1000, local_steps=STEPS).params
    assert np.linalg.norm(plain - task().minimiser) > 0.1


@pytest.mark.parametrize("cohort", [4, 2])
def test_the_servers_variate_is_the_weighted_mean_of_the_clients(cohort):
    """c = Σ w_i c_i over all clients, after every round."""
    with float64():
        method = ft.methods.fadamgc(ft.client.amsgrad(0.01))
        simulation = Simulation(task(), method, cohort=cohort, local_steps=STEPS)
        state = simulation.start()
        for _ in range(3):
            state, _ = simulation.round(state)
            expected = np.asarray(WEIGHTS) @ np.asarray(state.memory[0]["rule"])
            np.testing.assert_allclose(state.server.shared, expected, atol=1e-12)
            assert np.abs(expected).max() > 0


def test_no_moments_travel():
    history = ft.train(task(), ft.methods.fadamgc(ft.client.amsgrad(0.01)), rounds=1, local_steps=1, cohort=2).history
    assert (history["bytes_up"][0], history["bytes_down"][0]) == (2 * 32, 2 * 32)  # 2 clients × (2 weights + c) × 8


def test_clients_that_may_be_drawn_twice_are_refused():
    with pytest.raises(ValueError, match=r"'by_size' may draw a client twice.*needs sampling 'uniform'"):
        ft.methods.fadamgc(ft.client.amsgrad(0.1), sampling="by_size")
