"""SlowMo: without momentum it is FedAvg; with it, the momentum is of gradients, whatever the clients' rate."""

import numpy as np
import pytest

import fedtrue as ft

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]]
STEPS = [2, 7, 4]
TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}
SCHEDULE = ft.schedules.exponential(0.1, factor=0.5)


def noisy():
    return ft.tasks.quadratic(HESSIANS, MINIMA, noise=1.0)


def test_without_momentum_it_is_fedavg_bit_for_bit():
    """x' = x − 1 · (γ · 0 · u + Δ)."""
    run = lambda method: ft.train(noisy(), method, rounds=20, local_steps=STEPS, cohort=2, seed=3).params
    slowmo = ft.methods.slowmo(ft.client.sgd(0.01), server_rate=1.0, beta=0.0)
    np.testing.assert_array_equal(run(slowmo), run(ft.methods.fedavg(0.01)))


@pytest.mark.parametrize("rate", [0.1, SCHEDULE], ids=["constant", "schedule"])
def test_three_rounds_by_hand(rate):
    """F_1 = (x−1)², F_2 = 2 (x+1)², from x = 2, u = 0; α = 0.8, β = 0.5, two steps; γ: 0.1, or halved per round."""
    alpha, beta, x, u = 0.8, 0.5, 2.0, 0.0
    for gamma in (0.1, 0.1, 0.1) if rate == 0.1 else (0.1, 0.05, 0.025):
        ends = []
        for h, minimum in ((2.0, 1.0), (4.0, -1.0)):
            y = x
            for _ in range(2):
                y = y - gamma * h * (y - minimum)
            ends.append(y)
        u = beta * u + (x - np.mean(ends)) / gamma
        x = x - alpha * gamma * u
    method = ft.methods.slowmo(ft.client.sgd(rate), server_rate=alpha, beta=beta)
    result = ft.train(ft.tasks.quadratic(**TWO), method, rounds=3, local_steps=2)
    assert result.params == pytest.approx([x], rel=1e-12)


@pytest.mark.slow
def test_with_a_constant_rate_it_is_fedavgm_and_with_a_schedule_it_is_not():
    """v = γ u: v' = β v + Δ only if γ does not change."""
    run = lambda method: ft.train(noisy(), method, rounds=5, local_steps=STEPS, seed=3).params
    pair = lambda rate: (run(ft.methods.slowmo(ft.client.sgd(rate), beta=0.7)), run(ft.methods.fedavgm(rate, beta=0.7)))
    np.testing.assert_allclose(*pair(0.01), rtol=1e-12)
    slowmo, fedavgm = pair(ft.schedules.exponential(0.01, factor=0.5))
    assert np.abs(slowmo - fedavgm).max() > 0.01


def test_rounds_with_a_rate_of_0_keep_the_momentum_finite_and_the_weights():
    """γ = 0 in round 0: nobody moves, x' = x − α · 0 · u'; from round 1 on as without that round."""
    late = lambda round_index: 0.01 * (round_index > 0)
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    run = lambda rate, rounds: ft.train(task, ft.methods.slowmo(ft.client.sgd(rate)), rounds=rounds, local_steps=3)
    np.testing.assert_allclose(run(late, 4).params, run(0.01, 3).params, rtol=1e-12)


def test_the_correction_is_that_of_fedopt():
    """β = 0, α = 2: server SGD with rate 2 on the corrected pseudo-gradient."""
    run = lambda method: ft.train(noisy(), method, rounds=5, local_steps=STEPS, seed=3).params
    slowmo = ft.methods.slowmo(ft.client.adagrad(0.1), server_rate=2.0, beta=0.0, correction="joint")
    fedopt = ft.fedopt(ft.client.adagrad(0.1), ft.server.sgd(2.0), correction="joint")
    np.testing.assert_allclose(run(slowmo), run(fedopt), rtol=1e-12)


def test_a_momentum_must_be_below_1():
    with pytest.raises(ValueError, match="slowmo: beta must be a finite number at least 0 and below 1, not 1"):
        ft.methods.slowmo(ft.client.sgd(0.1), beta=1)
