"""Two steps of every client optimizer, computed by hand."""

import jax.numpy as jnp
import pytest
from pytest import approx

from fedtrue import client
from fedtrue.precision import float64


def steps(optimizer, gradients):
    """The steps for a sequence of gradients, as numbers."""
    with float64():
        x = jnp.zeros(())
        state, memory, out = optimizer.init(x, 0), optimizer.move.init(x), []
        for g in gradients:
            p, state = optimizer.precondition(jnp.asarray(float(g)), state)
            step, memory = optimizer.move.step(jnp.asarray(float(g)), p, state, memory)
            out.append(float(step))
        return out


def test_sgd():
    assert steps(client.sgd(1.0), [2, -3]) == [2, -3]


def test_heavy_ball_and_nesterov():
    assert steps(client.momentum(1.0, beta=0.5), [2, 4]) == [1, 2.5]  # m = 2/2, then 1/2 + 4/2
    assert steps(client.momentum(1.0, beta=0.5, dampening=0.0), [2, 4]) == [2, 5]  # m = 2, then 1 + 4
    assert steps(client.momentum(1.0, beta=0.5, nesterov=True), [2, 4]) == [1.5, 3.25]  # 1/2 + 2/2, then 2.5/2 + 4/2


def test_adagrad():
    first, second = steps(client.adagrad(1.0, epsilon=0.0, initial_accumulator=5.0), [2, 4])
    assert first == approx(2 / 3)  # v = 5 + 2² = 9, P = 1/3
    assert second == approx(4 / 5)  # v = 9 + 4² = 25, P = 1/5


def test_epsilon_is_added_outside_the_root():
    assert steps(client.adagrad(1.0, epsilon=1.0, initial_accumulator=5.0), [2]) == [approx(2 / (3 + 1))]


def test_lagged_adagrad_uses_only_previous_gradients():
    first, second = steps(client.adagrad(1.0, epsilon=0.0, initial_accumulator=4.0, lagged=True), [2, 4])
    assert first == approx(2 / 2)  # P from v₀ = 4
    assert second == approx(4 / 8**0.5)  # v = 4 + 2² = 8


def test_rmsprop():
    assert steps(client.rmsprop(1.0, beta2=0.75, epsilon=0.0), [2, 2]) == [
        approx(2.0),  # v = 4/4 = 1
        approx(2 / 1.75**0.5),  # v = 3/4 + 4/4
    ]


def test_adam_with_bias_correction_starts_with_the_sign_of_the_gradient():
    first, second = steps(client.adam(1.0, beta1=0.5, beta2=0.75, epsilon=0.0), [2, -2])
    assert first == approx(1.0)  # m̂ = 1/(1/2) = 2, v̂ = 1/(1/4) = 4
    # m = 1/2 − 1 = −1/2, m̂ = −1/2 / (3/4) = −2/3; v = 3/4 + 1 = 7/4, v̂ = (7/4)/(7/16) = 4
    assert second == approx(-1 / 3)


@pytest.mark.parametrize("optimizer", [client.adam, client.amsgrad, client.yogi])
def test_epsilon_after_correction_is_added_to_the_corrected_root(optimizer):
    options = {"beta1": 0.5, "beta2": 0.75, "epsilon": 1.0, "initial_accumulator": 0.0}
    # m̂ = 2; v = 1, v̂ = 1/(1/4) = 4: P̂ = 1/(√4 + 1), and 1/(√1 + 1) · √(1/4) if ε is added to √v
    assert steps(optimizer(1.0, **options, epsilon_after_correction=True), [2]) == [approx(2 / 3)]
    assert steps(optimizer(1.0, **options), [2]) == [approx(2 / 4)]


def test_epsilon_after_correction_of_adabelief():
    optimizer = client.adabelief(1.0, beta1=0.5, beta2=0.75, epsilon=1.0, epsilon_after_correction=True)
    assert steps(optimizer, [2]) == [approx(1.0)]  # b = 1, v = (2−1)²/4, v̂ = 1, m̂ = 2: 2/(1 + 1)


@pytest.mark.parametrize("optimizer", [client.adam, client.amsgrad, client.yogi, client.adabelief])
def test_epsilon_after_a_correction_that_is_off_is_refused(optimizer):
    with pytest.raises(ValueError, match="needs bias_correction=True"):
        optimizer(1.0, bias_correction=False, epsilon_after_correction=True)


def test_adam_without_bias_correction_equals_algorithm_1():
    assert steps(client.adam(1.0, beta1=0.5, beta2=0.75, epsilon=0.0, bias_correction=False), [2]) == [
        approx(1.0)  # m = 1, v = 1
    ]


def test_yogi():
    first, second = steps(client.yogi(1.0, beta1=0.5, beta2=0.75, epsilon=0.0, bias_correction=False), [2, 1])
    assert first == approx(1 / 2**0.5)  # v = 1 + (1/4)·4 = 2 since v < g²; m = 1
    assert second == approx(1 / 1.75**0.5)  # v = 2 − (1/4)·1 since v > g²; m = 1/2 + 1/2


def test_the_preconditioner_of_amsgrad_never_grows():
    first, second = steps(client.amsgrad(1.0, beta1=0.0, beta2=0.5, epsilon=0.0, bias_correction=False), [4, 1])
    assert first == approx(4 / 8**0.5)  # v = 16/2
    assert second == approx(1 / 8**0.5)  # v = 4 + 1/2 < 8: the maximum is kept


def test_adabelief():
    first, second = steps(client.adabelief(1.0, beta1=0.5, beta2=0.5, epsilon=0.0, bias_correction=False), [4, 4])
    assert first == approx(2 / 2**0.5)  # b = 2, v = (4−2)²/2 = 2, m = 2
    assert second == approx(3 / 1.5**0.5)  # b = 3, v = 1 + (4−3)²/2, m = 3


@pytest.mark.parametrize("optimizer", [client.adam, client.rmsprop, client.amsgrad, client.adabelief])
def test_lagged_with_an_accumulator_of_zero_is_refused(optimizer):
    with pytest.raises(ValueError, match="initial_accumulator"):
        optimizer(1.0, lagged=True)
