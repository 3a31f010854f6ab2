"""The round operator equals a round of the engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from fedtrue.theory import expected, local_operators, pseudo_gradient, round_operator

STEPS, RATES = [2, 4], [1.0, 0.5]


def test_three_rounds_of_the_operator_equal_three_rounds_of_training():
    task = ft.tasks.quadratic(noise=0.5)
    method = ft.fedopt(ft.client.adam(0.05), ft.server.adam(0.1), correction="joint")
    with float64():
        operate = jax.jit(round_operator(task, method, STEPS, RATES))
        state = method.init(jnp.asarray(task.start))
        for round_index in range(3):
            state = operate(state, jnp.uint32(7), round_index)
    trained = ft.train(task, method, rounds=3, local_steps=STEPS, rate_multipliers=RATES, seed=7)
    np.testing.assert_allclose(state.params, trained.params, rtol=1e-12)


def test_without_correction_the_pseudo_gradient_is_x_minus_the_weighted_mean_of_the_local_operators():
    task = ft.tasks.quadratic(weights=[3.0, 1.0])
    optimizer = ft.client.adagrad(0.1)
    with float64():
        x = jnp.asarray(task.start)
        operators = jax.jit(local_operators(task, optimizer, STEPS, RATES))(x)
        handed = jax.jit(pseudo_gradient(task, ft.fedopt(optimizer, correction="none"), STEPS, RATES))(x)
        np.testing.assert_allclose(handed, x - np.array([0.75, 0.25]) @ operators, rtol=1e-12)


def test_the_expected_operator_is_the_mean_over_its_seeds():
    task = ft.tasks.quadratic(noise=1.0)
    with float64():
        operate = jax.jit(round_operator(task, ft.fedopt(ft.client.sgd(0.01), correction="none"), 2))
        x = jnp.asarray(task.start)
        by_hand = np.mean([operate(x, jnp.uint32(seed)) for seed in range(3)], axis=0)
        np.testing.assert_allclose(jax.jit(expected(operate, 3))(x), by_hand, rtol=1e-12)


def test_a_method_whose_clients_keep_state_is_refused():
    method = ft.fedopt(ft.client.adagrad(0.1), client_state="sync")
    with float64(), pytest.raises(ValueError, match="keep other state"):
        round_operator(ft.tasks.quadratic(), method, 2)(jnp.zeros(2))


def test_local_steps_for_the_wrong_number_of_clients_are_refused():
    with pytest.raises(ValueError, match="local_steps has 3 entries for 2 clients: give one number, or one per client"):
        round_operator(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.1)), [1, 2, 3])


def test_the_operator_reads_unshuffled_data_in_order_like_training():
    slopes = np.array([[1.0, 10.0, 100.0, 1000.0]]).T
    task = ft.tasks.from_arrays(
        [{"x": slopes}, {"x": -2 * slopes[:2]}],
        init=lambda key: jnp.zeros(1),
        loss=lambda params, example: jnp.sum((params - example["x"]) ** 2),
        batch_size=1,
        shuffle=False,
        float64=True,
    )
    method = ft.fedopt(ft.client.adagrad(0.5))  # Adagrad's steps depend on the order of the examples
    with float64():
        once = round_operator(task, method)(jnp.zeros(1), seed=3)
    np.testing.assert_allclose(once, ft.train(task, method, rounds=1, seed=3).params, rtol=1e-12)
