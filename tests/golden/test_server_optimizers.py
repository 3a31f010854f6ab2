"""Two steps of every server optimizer, computed by hand: ε_s outside the root, v₀ = 0, no bias correction."""

import jax.numpy as jnp
import optax
from pytest import approx

from fedtrue.algorithm import server_optimizer as server
from fedtrue.precision import float64


def positions(optimizer, pseudo_gradients):
    """The position after each step, from 0."""
    with float64():
        x, out = jnp.zeros(()), []
        state = optimizer.init(x)
        for d in pseudo_gradients:
            updates, state = optimizer.update(jnp.asarray(float(d)), state, x)
            x = optax.apply_updates(x, updates)
            out.append(float(x))
        return out


def test_sgd_and_momentum():
    assert positions(server.sgd(0.5), [2, 4]) == [-1, -3]
    assert positions(server.momentum(0.5, beta=0.5), [2, 4]) == [-1, -3.5]  # m = 2, then 1 + 4 = 5


def test_adagrad():
    assert positions(server.adagrad(1.0, epsilon=1.0), [3, 4]) == [
        approx(-3 / 4),  # v = 9: 3/(3+1)
        approx(-3 / 4 - 4 / 6),  # v = 25: 4/(5+1)
    ]


def test_adam():
    assert positions(server.adam(1.0, beta1=0.5, beta2=0.75, epsilon=1.0), [2, 2]) == [
        approx(-1 / 2),  # m = 1, v = 1: 1/(1+1)
        approx(-1 / 2 - 1.5 / (1.75**0.5 + 1)),  # m = 3/2, v = 3/4 + 1
    ]


def test_adam_with_bias_correction_as_in_keras():
    corrected = server.adam(1.0, beta1=0.5, beta2=0.75, epsilon=1.0, bias_correction=True)
    assert positions(corrected, [2, 2]) == [
        approx(-1 / 2, rel=1e-12),  # √(1−3/4)/(1−1/2) = 1, m = 1, v = 1: 1·1/(1+1)
        approx(-1 / 2 - (7**0.5 / 3) * 1.5 / (1.75**0.5 + 1), rel=1e-12),  # √(1−9/16)/(1−1/4) = (√7/4)/(3/4)
    ]


def test_yogi():
    assert positions(server.yogi(1.0, beta1=0.0, beta2=0.75, epsilon=1.0), [2, 1]) == [
        approx(-2 / (1 + 1)),  # v = 0 + (1/4)·4
        approx(-1 - 1 / 2),  # v = 1, g² = 1: sign 0, v is unchanged
    ]


def test_a_schedule_is_a_function_of_the_servers_steps():
    halved = lambda step: jnp.where(step < 1, 1.0, 0.5)
    assert positions(server.sgd(halved), [2, 2]) == [-2, -3]
    assert positions(server.adagrad(halved, epsilon=1.0), [3, 4]) == [approx(-3 / 4), approx(-3 / 4 - 0.5 * 4 / 6)]
