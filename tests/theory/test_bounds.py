"""Theorem 1's bounds hold on measured runs, its corollary for all constants."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fedtrue as ft
from fedtrue.theory import (
    Recursion,
    closed_form_fixed_point,
    gd_bound,
    sgd_bound,
    sgd_contraction,
    sgd_corollary,
    sgd_noise_factor,
    sgd_schedule,
    sgd_variance,
    theorem_1,
    theorem_1_schedule,
)
from fedtrue.theory.bounds import MAX_NOISE_FACTOR
from tests.theory.paths import server_path

HESSIANS, MINIMA = [[1.0, 4.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]
MU, RATE, STEPS, ROUNDS, NOISE = 1.0, 0.1, 3, 30, 1.0


def fixed_point():
    return closed_form_fixed_point(HESSIANS, MINIMA, np.ones((2, 2)), RATE, STEPS)


def sgd_recursion():
    h, q = sgd_contraction(RATE, MU, STEPS), sgd_variance(RATE, STEPS)
    return Recursion.of([1, 1], [h, h], [q, q], noise_variance=2 * NOISE**2)  # two coordinates of variance σ²


def test_gd_runs_stay_under_the_gd_bound():
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    path = server_path(task, ft.fedopt(ft.client.sgd(RATE), correction="none"), ROUNDS, STEPS)[0]
    distances = np.sum((path - fixed_point()) ** 2, axis=1)
    bounds = gd_bound(RATE, MU, STEPS, distances[0], np.arange(ROUNDS + 1))
    assert (distances <= bounds + 1e-20).all()


@pytest.mark.parametrize("schedule", [sgd_schedule, theorem_1_schedule])
def test_the_mean_of_sgd_runs_stays_under_the_bounds(schedule):
    task, recursion = ft.tasks.quadratic(HESSIANS, MINIMA, noise=NOISE), sgd_recursion()
    rates = schedule(recursion, ROUNDS)
    assert (rates <= 1).all()
    alpha = jnp.asarray(rates, jnp.float32)
    method = ft.fedopt(ft.client.sgd(RATE), ft.server.sgd(lambda t: alpha[t]), correction="none")
    paths = server_path(task, method, len(rates), STEPS, range(400))
    mean = np.mean(np.sum((paths - fixed_point()) ** 2, axis=2), axis=0)
    exact = recursion.iterate(mean[0], rates)
    assert (mean <= exact * 1.001).all()
    if schedule is sgd_schedule:
        rounds = np.arange(len(rates) + 1)
        assert (exact <= sgd_bound(recursion, mean[0], rounds) * (1 + 1e-12)).all()
        assert (exact <= sgd_corollary(RATE, MU, STEPS, 2, 2 * NOISE**2, mean[0], rounds)).all()
    else:
        assert exact[-1] <= theorem_1(recursion, mean[0], ROUNDS)


@example(0.5, 5e-324, 0.0, 28)
@given(st.floats(1e-3, 1.0), st.floats(0, 10.0), st.floats(0, 100.0), st.integers(1, 400))
def test_the_recursion_stays_under_both_closed_form_bounds_for_all_constants(a, c, first, rounds):
    recursion = Recursion(a, c)
    bounds = recursion.iterate(first, sgd_schedule(recursion, rounds))
    underflow = 1e-300  # below it floats have no relative accuracy
    assert (bounds <= sgd_bound(recursion, first, np.arange(rounds + 1)) * (1 + 1e-9) + underflow).all()
    last = recursion.iterate(first, theorem_1_schedule(recursion, rounds))[-1]  # after T + 1 rounds
    assert last <= theorem_1(recursion, first, rounds) * (1 + 1e-9) + underflow


def test_the_noise_term_is_inversely_proportional_to_the_number_of_clients():
    one, four = (Recursion.of(np.ones(m), np.full(m, 0.5), np.full(m, 0.1), 1.0) for m in (1, 4))
    assert four.c == pytest.approx(one.c / 4)  # Σ w² q = q / M; the paper's β lacks this 1/M


def test_clients_that_do_not_contract_are_refused():
    with pytest.raises(ValueError, match="contractive"):
        Recursion.of([1, 1], [1.0, 1.1], [0, 0], 1.0)


def test_server_rates_above_one_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        Recursion(0.5, 0.0).iterate(1.0, [1.5])


LOCAL_STEPS = st.integers(1, 1000)
PROGRESS = st.floats(1e-9, 1.0)  # ημτ


def noise_factor(progress, tau):
    """z with μ = 1, from ημτ."""
    return float(sgd_noise_factor(progress / tau, 1.0, tau))


@given(st.floats(1e-9, 0.98), st.floats(1e-9, 0.01), LOCAL_STEPS)
def test_the_noise_factor_increases_with_the_learning_rate_and_the_local_steps_from_one(rate, more, tau):
    z = sgd_noise_factor(rate, 1.0, tau)
    assert z * (1 + 1e-12) >= 1
    assert z <= sgd_noise_factor(rate + more, 1.0, tau) * (1 + 1e-12)
    assert z <= sgd_noise_factor(rate, 1.0, tau + 1) * (1 + 1e-12)


@given(LOCAL_STEPS)
def test_the_noise_factor_tends_to_one_as_the_learning_rate_vanishes(tau):
    assert noise_factor(1e-9, tau) == pytest.approx(1, abs=2e-9)  # z = 1 + (τ − 1/2) ημ + …


@given(PROGRESS, st.integers(2, 1000))
def test_the_noise_factor_is_below_its_constant_while_eta_mu_tau_is_at_most_one(progress, tau):
    assert noise_factor(progress, tau) < MAX_NOISE_FACTOR < 3  # the paper's constant
    assert noise_factor(progress, tau) <= 2 * progress / -np.expm1(-2 * progress) * (1 + 1e-12)  # since 1 − x ≤ e^{−x}


def test_the_constant_of_the_noise_factor_is_its_supremum():
    assert noise_factor(1.0, 10**6) == pytest.approx(MAX_NOISE_FACTOR, rel=1e-5)  # (1 − 1/τ)^{2τ} → e⁻²


def test_without_a_bound_on_eta_mu_tau_the_noise_factor_is_not_bounded():
    assert sgd_noise_factor(0.5, 1.0, 100) == pytest.approx(100)  # 2 · 0.5 · 100 / (1 − 2^{−200})


@pytest.mark.parametrize("rate", [0.0, 1.0, 1.5])
def test_rates_at_which_sgd_does_not_contract_have_no_noise_factor(rate):
    with pytest.raises(ValueError, match="0 < ημ < 1"):
        sgd_noise_factor(rate, 1.0, 3)


def equal_clients(rate, mu, tau, clients, noise_variance):
    h, q = sgd_contraction(rate, mu, tau), sgd_variance(rate, tau)
    return Recursion.of(np.ones(clients), np.full(clients, h), np.full(clients, q), noise_variance)


@given(st.floats(0.01, 0.9), st.floats(0.1, 10.0), st.integers(1, 50), st.integers(1, 100))
def test_the_noise_of_the_sgd_bound_is_that_of_all_gradients_times_the_squared_noise_factor(x, mu, tau, clients):
    a, c = equal_clients(x / mu, mu, tau, clients, noise_variance=2.0)
    all_gradients = 2.0 / (mu**2 * clients * tau)
    assert 4 * c / a**2 == pytest.approx(float(sgd_noise_factor(x / mu, mu, tau)) ** 2 * all_gradients)


@given(st.floats(1e-3, 0.99), st.integers(1, 50), st.floats(0.1, 10.0), st.integers(1, 100), *[st.floats(0, 100.0)] * 2)
def test_the_recursion_stays_under_the_corollary_for_all_constants(progress, tau, mu, clients, noise_variance, first):
    rate, rounds = progress / (mu * tau), 100
    recursion = equal_clients(rate, mu, tau, clients, noise_variance)
    bounds = recursion.iterate(first, sgd_schedule(recursion, rounds))
    corollary = sgd_corollary(rate, mu, tau, clients, noise_variance, first, np.arange(rounds + 1))
    assert (bounds <= corollary * (1 + 1e-9) + 1e-300).all()


def test_far_from_the_fixed_point_the_corollary_is_sharper_than_the_sgd_bound():
    recursion, far = equal_clients(0.1, 1.0, 10, clients=8, noise_variance=1.0), 100.0
    assert sgd_corollary(0.1, 1.0, 10, 8, 1.0, far, 1000) < sgd_bound(recursion, far, 1000) / 30
    # r₀ enters as (B/T)² = (2.3/1000)² and as β/T = 2.3/1000


def test_local_steps_average_the_noise_like_more_clients():
    of = lambda clients, tau: sgd_corollary(0.1 / tau, 1.0, tau, clients, 1.0, 0.0, 50)
    assert of(clients=4, tau=6) == pytest.approx(of(clients=24, tau=1))  # a round has M τ = 24 gradients


def test_the_corollary_is_refused_above_its_condition():
    with pytest.raises(ValueError, match="η μ τ ≤ 1"):
        sgd_corollary(0.3, 1.0, 4, 2, 1.0, 1.0, 10)


def test_sgd_whose_noise_depends_on_the_weights_can_expand_where_the_paper_proves_contraction():
    # F' = μ u below 0 and L u above; the noise is ±1 with equal probability at x = 0, and 0 at y = −0.01
    eta, mu, smoothness = 0.3, 1.0, 4.0  # η (μ + L) = 1.5 < 2
    step = lambda u: u - eta * np.where(u < 0, mu, smoothness) * u
    mean_from_x = np.mean(step(np.array([eta, -eta])))  # (−0.2 · 0.3 − 0.7 · 0.3) / 2
    mean_from_y = step(step(-0.01))  # −0.7² · 0.01
    assert mean_from_x - mean_from_y == pytest.approx(-0.135 + 0.0049)
    expansion = (mean_from_x - mean_from_y) ** 2 / 0.01**2
    assert expansion > 100 > 1 > sgd_contraction(eta, mu, 2)
