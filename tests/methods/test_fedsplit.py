"""FedSplit: a proximal step of all clients; `test_full_participation.py` has what it shares with FedPD."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from tests.methods.unequal_clients import HESSIANS, MINIMA, STEPS, WEIGHTS, task


def test_two_rounds_by_hand():
    """The published equations: F_1 = (x−1)², F_2 = 2 (x+1)², from x = z_1 = z_2 = 2; s = 0.2, η = 0.1, two steps."""
    s, eta, z = 0.2, 0.1, [2.0, 2.0]
    x = np.mean(z)
    for _ in range(2):
        for i, (hessian, minimum) in enumerate(((2.0, 1.0), (4.0, -1.0))):
            y, center = x, 2 * x - z[i]
            for _ in range(2):
                y = y - eta * (hessian * (y - minimum) + (y - center) / s)
            z[i] = z[i] + 2 * (y - x)
        x = np.mean(z)
    two = ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]], start=[2.0])
    result = ft.train(two, ft.methods.fedsplit(ft.client.sgd(eta), step_size=s), rounds=2, local_steps=2)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_with_solved_local_problems_it_converges_at_the_rate_of_peaceman_rachford():
    """2 prox_{sF} − 1 multiplies by (1 − s h)/(1 + s h) per curvature h; 2 mean − 1 keeps the norm Σ p_i ‖z_i‖².

    With s = 1/√(ℓ L) the factors are at most (√κ − 1)/(√κ + 1), κ = L/ℓ = 30. At the minimiser z_i* = x* − s ∇F_i(x*).
    """
    rounds, s = 30, 1 / np.sqrt(1.0 * 30.0)
    rate = (np.sqrt(30) - 1) / (np.sqrt(30) + 1)  # 0.691
    result = ft.train(task(), ft.methods.fedsplit(ft.client.sgd(0.02), s), rounds=rounds, local_steps=400)
    minimiser, start, p = task().minimiser, np.asarray(task().start), np.asarray(WEIGHTS)
    to_fixed_point = start - (minimiser - s * HESSIANS * (minimiser - MINIMA))
    bound = rate**rounds * np.sqrt(p @ (to_fixed_point**2).sum(axis=1))  # ‖x − x*‖² ≤ Σ p_i ‖z_i − z_i*‖²
    assert np.linalg.norm(result.params - minimiser) <= bound < 1e-3


@pytest.mark.parametrize("availability", [None, ft.Availability(dropout=0.4)], ids=["all", "dropouts"])
def test_the_servers_weights_are_the_weighted_mean_of_the_clients(availability):
    """x = Σ p_i z_i after every round; a client that does not reply keeps its z_i."""
    with float64():
        method = ft.methods.fedsplit(ft.client.sgd(0.01), step_size=0.1)
        simulation = ft.Simulation(task(), method, local_steps=STEPS, availability=availability)
        state = simulation.start()
        for _ in range(4):
            state, _ = simulation.round(state)
            (memory,) = state.memory
            np.testing.assert_allclose(state.params, np.asarray(WEIGHTS) @ np.asarray(memory["rule"]), rtol=1e-12)
    assert not np.allclose(memory["rule"], task().start)
