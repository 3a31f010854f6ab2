"""Δ-SGD: a client's step sizes follow the smoothness along its path, and the trace is their sum."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.methods.delta_sgd import smoothness_sgd
from fedtrue.precision import float64

ONE = {"hessians": [[2.0]], "minima": [[1.0]], "start": [5.0]}  # F = (x−1)², curvature h = 2


def run(task, rounds=1, local_steps=1, **options):
    return ft.train(task, ft.methods.delta_sgd(**options), rounds=rounds, local_steps=local_steps).params


def test_three_steps_by_hand():
    """γ/(2h) = 1/2 in every step, so growth decides: η = 0.2, √1.1 · 0.2, √(1 + 0.1 √1.1) · √1.1 · 0.2."""
    rates = [0.2, np.sqrt(1.1) * 0.2]
    rates.append(np.sqrt(1 + 0.1 * np.sqrt(1.1)) * rates[1])  # θ_1 = √1.1
    distance = 4.0
    for rate in rates:
        distance = distance - rate * 2 * distance
    assert max(rates) < 0.5
    assert run(ft.tasks.quadratic(**ONE), local_steps=3) == pytest.approx([1 + distance], rel=1e-12)


def test_step_sizes_start_again_in_every_round():
    distance = 4.0 * ((1 - 2 * 0.2) * (1 - 2 * np.sqrt(1.1) * 0.2)) ** 2
    assert run(ft.tasks.quadratic(**ONE), rounds=2, local_steps=2) == pytest.approx([1 + distance], rel=1e-12)


def test_in_one_dimension_gamma_2_takes_newtons_step_and_gamma_1_half_of_it():
    """η_0 = 0.9 is too long: x_1 = 5 − 0.9 · 8 = −2.2. Then η_1 = γ/(2h): 1/h reaches 1, 1/(2h) half of the way."""
    task = ft.tasks.quadratic(**ONE)
    assert run(task, local_steps=2, client_rate=0.9) == pytest.approx([1.0], rel=1e-12)
    assert run(task, local_steps=2, client_rate=0.9, gamma=1.0) == pytest.approx([(-2.2 + 1) / 2], rel=1e-12)
    assert run(task, local_steps=9, client_rate=0.9) == pytest.approx([1.0], rel=1e-12)  # and stays, with ‖Δg‖ = 0


@pytest.mark.parametrize("first_rate", [0.001, 0.2, 5.0])
def test_step_sizes_are_between_the_inverse_curvatures_under_noise_that_does_not_depend_on_the_weights(first_rate):
    """Same batch: g(y_k; ζ) − g(y_{k−1}; ζ) = H (y_k − y_{k−1}), of norm in [μ, L] ‖y_k − y_{k−1}‖.

    So η_k ≤ γ/(2μ) for k ≥ 1, and η_k ≥ min(η_0, γ/(2L)), as growth never shrinks a step size.
    """
    gamma, curvatures = 2.0, np.array([1.0, 30.0])
    with float64():
        optimizer, noise = smoothness_sgd(first_rate, gamma, 0.1, 1.0), np.random.default_rng(0)
        x, rates = jnp.array([3.0, -2.0]), []
        state = optimizer.init(x, 0)
        for _ in range(60):
            batch = noise.normal(size=2)
            gradient_at = lambda x, batch=batch: curvatures * x + batch
            state = optimizer.observe(state, x, gradient_at(x), gradient_at)
            p, state = optimizer.precondition(gradient_at(x), state)
            rates.append(float(p))
            x = x - p * gradient_at(x)
    assert rates[0] == first_rate
    assert max(rates[1:]) <= gamma / (2 * 1.0) * (1 + 1e-9)
    assert min(rates) >= min(first_rate, gamma / (2 * 30.0)) * (1 - 1e-9)


def test_the_exact_trace_is_the_sum_of_the_step_sizes():
    """For a constant gradient nothing is seen of a curvature and Δ_i = g_i Σ_k η_k: mean Δ_i / N_i = mean g_i."""
    examples = [{"x": np.full((4, 2), 3.0)}, {"x": np.full((4, 2), -1.0)}]
    task = ft.tasks.from_arrays(
        examples,
        init=lambda key: {"a": jnp.zeros(2), "b": jnp.zeros(())},
        loss=lambda params, example: jnp.sum(params["a"] * example["x"]) + params["b"],
        batch_size=4,
    )
    params = run(task, local_steps=[1, 6], correction="local", server=ft.server.sgd(0.5))
    np.testing.assert_allclose(params["a"], [-0.5 * (3 - 1) / 2] * 2, rtol=1e-5)
    np.testing.assert_allclose(params["b"], -0.5, rtol=1e-5)


def test_training_compares_gradients_of_the_same_batch():
    """With noise and h = 2: η_0 = 0.9, then γ/(2h) = 0.5 exactly, so N = 1.4; the updates are Δ and Δ / N."""
    noisy = ft.tasks.quadratic(**ONE, noise=2.0)
    moved, by_trace = (
        run(noisy, local_steps=2, client_rate=0.9, correction=correction)[0] - 5 for correction in ("none", "local")
    )
    assert moved / by_trace == pytest.approx(1.4, rel=1e-12)


def test_it_sends_what_fedavg_sends():
    history = ft.train(ft.tasks.quadratic(**ONE), ft.methods.delta_sgd(), rounds=1).history
    assert (history["bytes_up"][0], history["bytes_down"][0]) == (8, 8)


def test_a_first_step_size_of_0_is_refused():
    with pytest.raises(ValueError, match="delta_sgd: client_rate must be a finite number above 0, not 0"):
        ft.methods.delta_sgd(client_rate=0)
