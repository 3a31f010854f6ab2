"""Theorem 3's bound holds on measured runs, with momentum too; under Algorithm 1's trace it does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedtrue as ft
from fedtrue.algorithm import linear
from fedtrue.algorithm.trace import exact
from fedtrue.precision import float64
from fedtrue.theory import measured_constants, measured_fixed_point, theorem_3, theorem_3_rates
from fedtrue.theory.local_correction import gradient_weights
from fedtrue.theory.operator import all_clients, local_path
from tests.theory.paths import server_path

HESSIANS, MINIMA = [[1.0, 4.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]
MATRICES = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 3.0]]]
TAU = 5
MOMENTUM = {
    "heavy ball": lambda rate: ft.client.momentum(rate),
    "undampened Nesterov": lambda rate: ft.client.momentum(rate, dampening=0.0, nesterov=True),
    "Adam": lambda rate: ft.client.adam(rate),
    "Adam without bias correction": lambda rate: ft.client.adam(rate, bias_correction=False),
}
OPTIMIZERS = MOMENTUM | {
    "Adagrad": lambda rate: ft.client.adagrad(rate),
    "lagged Yogi": lambda rate: ft.client.yogi(rate, lagged=True),
    "matrices": lambda rate: ft.client.preconditioned(MATRICES, rate),
    "clipped by norm": lambda rate: ft.client.momentum(rate, clip_norm=1.0),
    "clipped by value": lambda rate: ft.client.adam(rate, clip_value=1.0),
    "scheduled": lambda rate: ft.client.momentum(rate, within_round=lambda step: 1 / (1 + step)),
}


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


@pytest.mark.parametrize("name", MOMENTUM)
def test_runs_with_momentum_stay_under_theorem_3(name):
    rng = np.random.default_rng(list(MOMENTUM).index(name))
    task = ft.tasks.quadratic(rng.uniform(0.5, 4.0, (3, 2)), rng.normal(0.0, 3.0, (3, 2)))
    smoothness, rounds = float(task.hessians.max()), 60
    rate = 1 / (TAU * smoothness)  # the largest that the theorem allows
    client = MOMENTUM[name](rate)
    method = ft.fedopt(client, ft.server.sgd(float(TAU)), correction="local", trace="exact")
    path = server_path(task, method, rounds, TAU)[0][:-1]
    gradients = (path - task.minimiser) @ task.hessians.mean(axis=0)
    gap = 0.5 * (task.start - task.minimiser) @ gradients[0]
    constants = measured_constants(task, client, path, TAU)
    assert np.mean(np.sum(gradients**2, axis=1)) <= theorem_3(gap, smoothness, *constants, rate, TAU, rounds)
    assert 1 <= constants.spread <= TAU


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weighted_gradients_add_up_to_the_displacement_and_their_weights_to_the_exact_trace(name):
    task, rate = ft.tasks.quadratic(HESSIANS, MINIMA), 0.1
    with float64():
        x, clients, optimizer = jnp.array([3.0, -2.0]), all_clients(task, None, TAU), OPTIMIZERS[name](rate)
        (last, params), (ones, _) = (
            local_path(task, optimizer, clients, TAU, trace)(x) for trace in (gradient_weights(TAU), exact())
        )
        weights = gradient_weights(TAU).total(last.trace)  # (clients, steps, …)
        before = jnp.concatenate([jnp.broadcast_to(x, params[:, :1].shape), params[:, :-1]], axis=1)
        gradients = jnp.einsum("iab,ikb->ika", task.hessians, before - task.minima[:, None])
        moved = rate * jnp.sum(jax.vmap(jax.vmap(linear.apply))(weights, gradients), axis=1)
        np.testing.assert_allclose(moved, x - params[:, -1], rtol=1e-12)
        total = jax.tree.map(lambda w: jnp.sum(w, axis=1), weights)
        jax.tree.map(lambda w, n: np.testing.assert_allclose(w, n, rtol=1e-12), total, exact().total(ones.trace))


def test_with_momentum_the_weight_of_a_gradient_grows_until_the_last_step():
    # the paper's proof takes the first k of these weights for the displacement after k < τ steps: here 0.19 for 0.1
    task = ft.tasks.quadratic([[1.0]], [[0.0]])

    def weights_of_heavy_ball(steps):
        with float64():
            trace = gradient_weights(steps)
            path = local_path(task, ft.client.momentum(0.1), all_clients(task, None, steps), steps, trace)
            return trace.total(path(jnp.ones(1))[0].trace).ravel()

    assert weights_of_heavy_ball(1) == pytest.approx([0.1])  # 1 − β
    assert weights_of_heavy_ball(2) == pytest.approx([0.19, 0.1])  # (1 − β)(1 + β), 1 − β


@pytest.mark.parametrize(("beta", "dampening"), [(0.5, None), (0.9, None), (0.9, 0.0), (0.999, 0.5)])
def test_the_spread_of_momentum_sgd_has_a_closed_form_below_two(beta, dampening):
    task, client = ft.tasks.quadratic(HESSIANS, MINIMA), ft.client.momentum(0.01, beta, dampening)
    spread = measured_constants(task, client, np.ones((1, 2)), TAU).spread
    # W_k = (1−d) Σ_{j=k}^{τ−1} β^{j−k} = (1−d)/(1−β) (1 − β^{τ−k}); the first is the largest, and (1−d)/(1−β) cancels:
    # Λ = τ W_0 / Σ_k W_k = τ (1 − β^τ) / Σ_{m=1}^τ (1 − β^m) = τ (1 − β^τ) / (τ − β (1 − β^τ) / (1 − β))
    largest = 1 - beta**TAU
    assert spread == pytest.approx(TAU * largest / (TAU - beta * largest / (1 - beta)))
    assert spread < 2 * TAU / (TAU + 1)  # 1 − β^m is concave in m and 0 at m = 0, so its mean is (τ+1)/(2τ) of its last


def test_a_fixed_matrix_gives_every_gradient_the_same_weight():
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    client = ft.client.preconditioned(MATRICES, 0.01)
    assert measured_constants(task, client, np.ones((1, 2)), 4).spread == pytest.approx(1)  # N = 4 P, so N⁻¹ P = I/4


def squared_gradient_and_bound(trace, rate):
    """‖∇F‖² at the fixed point of a method, where a run stays, and Theorem 3's bound for a run that starts there.

    Three clients with F_i'' = 1 have gradients of sizes 1, 1, 2 at the minimum; Adam's preconditioners fall from v₀ = 1
    to the gradient's size within a round, so they have another shape on the third client.
    """
    task = ft.tasks.quadratic([[1.0], [1.0], [1.0]], [[0.0], [0.0], [3.0]])
    client = ft.client.adam(rate, beta2=0.9, initial_accumulator=1.0, bias_correction=False)
    method = ft.fedopt(client, ft.server.sgd(10.0), correction="local", trace=trace)
    x = measured_fixed_point(task, method, local_steps=10).params
    gradient = float(x[0] - task.minimiser[0])
    constants = measured_constants(task, client, x[None], 10)
    return gradient**2, theorem_3(gradient**2 / 2, 1.0, *constants, rate, 10, rounds=10**9)


def test_under_the_papers_trace_runs_with_momentum_break_theorem_3():
    exact_gradient, bound = squared_gradient_and_bound("exact", 1e-3)
    assert exact_gradient <= bound
    for rate in (1e-3, 1e-4):  # the bound vanishes with the rate, the gradient does not
        gradient, bound = squared_gradient_and_bound("paper", rate)
        assert gradient == pytest.approx(0.0067, abs=1e-4)
        assert gradient > 50 * bound


def test_constants_of_theorem_3_are_not_measured_with_weight_decay():
    with pytest.raises(ValueError, match="weight decay"):
        measured_constants(ft.tasks.quadratic(), ft.client.sgd(0.1, weight_decay=0.1), np.zeros((1, 2)), 2)
