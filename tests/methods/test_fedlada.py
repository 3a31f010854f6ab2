"""FedLADA: local AMSGrad from averaged second moments, blended with the direction of the last round."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.method import federated
from fedtrue.precision import float64

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}  # F_1 = (x−1)², F_2 = 2 (x+1)²
CLIENTS, W = ((2.0, 1.0, 2), (4.0, -1.0, 3)), np.array([0.25, 0.75])  # h_i, m_i and τ_i; w_i
ETA, ALPHA, BETA1, BETA2, EPSILON = 0.1, 0.3, 0.5, 0.9, 0.2


def local_steps(h, minimum, steps, x, v0, d):
    """m = 0 and v = u = V at first; y ← y − η (α m / √u + (1−α) d)."""
    y, m, v, u = x, 0.0, v0, v0
    for _ in range(steps):
        g = h * (y - minimum)
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
        u = max(u, v)
        y = y - ETA * (ALPHA * m / np.sqrt(u) + (1 - ALPHA) * d)
    return y, u


def test_three_rounds_by_hand():
    """V = ε² and d = 0 at first; then V = Σ w_i u_i and d = (x − Σ w_i y_i) / (η τ), τ = 2/4 + 3 · 3/4 = 2.75."""
    x, v, d = 2.0, EPSILON**2, 0.0
    with float64():
        method = ft.methods.fedlada(ETA, ALPHA, BETA1, BETA2, EPSILON)
        simulation = ft.Simulation(ft.tasks.quadratic(**TWO, weights=W), method, local_steps=[2, 3])
        state = simulation.start()
        for _ in range(3):
            ends, squares = zip(*(local_steps(h, minimum, steps, x, v, d) for h, minimum, steps in CLIENTS))
            d, v, x = (x - W @ ends) / (ETA * 2.75), W @ squares, W @ ends
            state, _ = simulation.round(state)
            assert state.params == pytest.approx([x], rel=1e-12)
            assert state.server.shared["second_moment"] == pytest.approx([v], rel=1e-12)
            assert state.server.shared["direction"] == pytest.approx([d], rel=1e-12)
            assert float(state.server.shared["steps"]) == pytest.approx(2.75 * state.round)


def test_the_first_step_by_hand():
    """g = 2, m = 1, v = 0.9 · 0.04 + 0.1 · 4 = 0.436: y = 2 − 0.1 · 0.3 · 1 / √0.436."""
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[2.0])
    result = ft.train(one, ft.methods.fedlada(ETA, ALPHA, BETA1, BETA2, EPSILON), rounds=1, local_steps=1)
    assert result.params == pytest.approx([2 - 0.03 / np.sqrt(0.436)], rel=1e-12)  # 1.9546


def test_a_learning_rate_of_0_has_no_direction():
    """Nobody moves, so d = 0, not 0/0."""
    paused = ft.schedules.piecewise([0.1, 0.0, 0.1], [1, 2])
    result = ft.train(ft.tasks.quadratic(**TWO), ft.methods.fedlada(paused), rounds=3, local_steps=2)
    assert np.isfinite(result.params).all() and result.history["dropped"].sum() == 0


def test_bytes_are_weights_second_moments_and_direction_down_and_update_and_second_moments_up():
    history = ft.train(ft.tasks.quadratic(**TWO), ft.methods.fedlada(0.1), rounds=1, local_steps=1).history
    assert history["bytes_up"][0] == 2 * 8 * (
        2 + 2
    )  # 2 clients of one weight in float64; its steps, and γ_i times these
    assert history["bytes_down"][0] == 2 * 8 * (3 + 1)  # and the number of steps so far


def test_diagnosis_leaves_out_the_direction_of_the_last_round(tmp_path):
    """Its pieces are those of a run whose server has no direction yet."""
    ft.train(ft.tasks.quadratic(**TWO), ft.methods.fedlada(0.05), rounds=5, local_steps=[2, 3], out=tmp_path)
    numbers = ft.diagnose(tmp_path, orders=2).diagnosis.numbers
    assert numbers.pieces["noise"].norm < 1e-9 * numbers.truth  # there is no noise, and nothing else is taken for it


def test_equal_rate_multipliers_are_a_client_rate():
    """d is what a step of rate η moved over η: with γ_i = 2 in it, clients that step by γ_i η d would add it up."""
    slow, fast = {"client_rate": 0.01}, {"client_rate": 0.02}
    doubled, plain = (
        ft.train(ft.tasks.quadratic(**TWO), ft.methods.fedlada(**rate), rounds=20, local_steps=3, rate_multipliers=by)
        for rate, by in ((slow, [2.0, 2.0]), (fast, [1.0, 1.0]))
    )
    np.testing.assert_allclose(doubled.params, plain.params, rtol=1e-12)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="fedlada: alpha must be a finite number above 0, not 0"):
        ft.methods.fedlada(0.1, alpha=0)
    with pytest.raises(ValueError, match=r"fedlada: 1 - alpha must be a finite number at least 0, not -0\.5"):
        ft.methods.fedlada(0.1, alpha=1.5)
    with pytest.raises(ValueError, match="fedlada: epsilon must be a finite number above 0, not 0"):
        ft.methods.fedlada(0.1, epsilon=0)


def test_a_step_term_is_refused_where_a_correction_would_divide_it_by_the_trace():
    rule = LocalRule(step_term=lambda broadcast: broadcast.params)
    with pytest.raises(ValueError, match="adds a step that is no gradient of theirs: use correction 'none'"):
        federated(ClientParts(ft.client.sgd(0.1), correction="joint", rule=rule), "sgd")
