"""The bounds of Theorems 1 and 3 hold on measured runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fedtrue as ft
from fedtrue.precision import float64
from fedtrue.theory import (
    Recursion,
    closed_form_fixed_point,
    gd_bound,
    measured_constants,
    round_operator,
    sgd_bound,
    sgd_contraction,
    sgd_schedule,
    sgd_variance,
    theorem_1,
    theorem_1_schedule,
    theorem_3,
    theorem_3_rates,
)

HESSIANS, MINIMA = [[1.0, 4.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]
MU, RATE, STEPS, ROUNDS, NOISE = 1.0, 0.1, 3, 30, 1.0


def server_path(task, method, rounds, local_steps, seeds=(0,)):
    """The server's weights after 0, 1, … rounds, one path per seed."""
    with float64():
        operate = round_operator(task, method, local_steps)

        def path(seed):
            def body(state, round_index):
                state = operate(state, seed, round_index)
                return state, state.params

            return jax.lax.scan(body, method.init(jnp.asarray(task.start)), jnp.arange(rounds))[1]

        later = np.asarray(jax.jit(jax.vmap(path))(jnp.asarray(seeds, jnp.uint32)))
    return np.concatenate([np.broadcast_to(task.start, (len(later), 1, task.start.size)), later], axis=1)


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
        assert (exact <= sgd_bound(recursion, mean[0], np.arange(len(rates) + 1)) * (1 + 1e-12)).all()
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


def test_adagrad_with_local_correction_stays_under_theorem_3():
    task, tau, rounds = ft.tasks.quadratic(HESSIANS, MINIMA), 4, 40
    smoothness = 4.0  # the largest curvature of any client
    rate = 1 / (2 * tau * smoothness)
    client = ft.client.adagrad(rate)
    method = ft.fedopt(client, ft.server.sgd(float(tau)), correction="local")  # α = ητ, and our N does not contain η
    path = server_path(task, method, rounds, tau)[0][:-1]
    hessian = task.hessians.mean(axis=0)
    gradients = (path - task.minimiser) @ hessian
    gap = 0.5 * (task.start - task.minimiser) @ gradients[0]
    constants = measured_constants(task, client, path, tau)
    bound = theorem_3(gap, smoothness, *constants, rate, tau, rounds)
    assert np.mean(np.sum(gradients**2, axis=1)) <= bound
    assert 1 <= constants.spread <= tau  # Λ ≥ 1 since the weights sum to the identity
    assert constants.largest_step <= np.sqrt(2)  # |P g| < 1 in each of two coordinates


@given(*[st.floats(0.01, 100.0)] * 4, st.integers(1, 20), st.integers(1, 10_000))
def test_the_rates_of_theorem_3_give_its_convergence_rate(gap, smoothness, spread, step, tau, rounds):
    rates = theorem_3_rates(gap, smoothness, spread, step, tau, rounds)
    bound = theorem_3(gap, smoothness, spread, step, rates.client, tau, rounds)
    tail = (gap * smoothness * step) ** (2 / 3) * spread ** (1 / 3) / rounds ** (2 / 3)
    assert bound <= (2 * gap * smoothness / rounds + 3 * tail) * (1 + 1e-9)
    assert rates.server == tau


def test_rates_above_those_of_theorem_3_are_refused():
    with pytest.raises(ValueError, match="η τ L ≤ 1"):
        theorem_3(1.0, 2.0, 1.0, 1.0, 1.0, 3, 10)


def test_constants_of_theorem_3_are_not_measured_for_momentum():
    with pytest.raises(ValueError, match="momentum"):
        measured_constants(ft.tasks.quadratic(), ft.client.adam(0.1), np.zeros((1, 2)), 2)
