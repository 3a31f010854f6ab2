"""FedAdamW: local AdamW from block means of the second moments, with the direction of the last round added."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from tests.methods import unequal_clients

ETA, ALPHA, BETA1, BETA2, EPSILON, DECAY = 0.1, 0.5, 0.6, 0.9, 0.01, 0.3
HESSIANS = np.array([[1.0, 30.0, 2.0], [20.0, 1.0, 4.0]])  # of two clients, of the weights a (two) and b (one)
MINIMA = np.array([[2.0, 1.0, -1.0], [-1.0, -2.0, 3.0]])
STEPS, W = [2, 3], np.array([0.25, 0.75])
BLOCKS = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])  # the mean of every block, at each of its weights
MODEL = {"a": np.zeros(2), "b": np.zeros(1)}


def loss(params, example):
    w = jnp.concatenate([params["a"], params["b"]])
    return jnp.sum(example["h"] * (w - example["m"]) ** 2) / 2


def two_clients(**settings):
    """Weights by examples: one and three copies of the same example."""
    clients = [{"h": np.tile(h, (n, 1)), "m": np.tile(m, (n, 1))} for h, m, n in zip(HESSIANS, MINIMA, (1, 3))]
    init = lambda key: {name: jnp.ones(len(leaf)) for name, leaf in MODEL.items()}
    return ft.tasks.from_arrays(clients, init, loss, batch_size=3, float64=True, **settings)


def local_steps(h, minimum, steps, x, v, t, d):
    """m = 0 and v = V at first; y ← y − η (m̂ / (√v̂ + ε) + α d + λ y), with ε scaled as v̂ (Keras)."""
    y, m = x, np.zeros(3)
    for k in range(1, steps + 1):
        g = h * (y - minimum)
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
        adam = m / (1 - BETA1**k) * np.sqrt(1 - BETA2 ** (t + k)) / (np.sqrt(v) + EPSILON)
        y = y - ETA * (adam + ALPHA * d + DECAY * y)
    return y, v


def test_three_rounds_by_hand():
    """V = d = 0 and t = 0 at first; then block means, d = (x − Σ w_i y_i) / (η τ) and t ← t + τ, τ = 2/4 + 3 · 3/4."""
    x, v, t, d, tau = np.ones(3), np.zeros(3), 0.0, np.zeros(3), 2.75
    with float64():
        method = ft.methods.fedadamw(ETA, ALPHA, BETA1, BETA2, EPSILON, DECAY)
        simulation = ft.Simulation(two_clients(), method, local_steps=STEPS)
        state = simulation.start()
        for _ in range(3):
            done = [local_steps(h, m, steps, x, v, t, d) for h, m, steps in zip(HESSIANS, MINIMA, STEPS)]
            ends, squares = (W @ np.array(column) for column in zip(*done))
            d, v, t, x = (x - ends) / (ETA * tau), BLOCKS @ squares, t + tau, ends
            state, _ = simulation.round(state)
            shared, params = state.server.shared, state.params
            np.testing.assert_allclose(np.concatenate([params["a"], params["b"]]), x, rtol=1e-12)
            np.testing.assert_allclose([shared["second_moment"]["a"], shared["second_moment"]["b"]], v[1:], rtol=1e-12)
            np.testing.assert_allclose(np.concatenate([*shared["direction"].values()]), d, rtol=1e-12)
            assert float(shared["steps"]) == pytest.approx(t)


def test_the_first_step_of_adamw_is_the_learning_rate_times_the_sign_and_the_decay():
    """m̂ = g and v̂ = g²: y = 2 − 0.1 (1 + 0.3 · 2) = 1.84, with ε = 0."""
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[2.0])
    method = ft.methods.fedadamw(0.1, epsilon=0.0, weight_decay=0.3)
    assert ft.train(one, method, rounds=1, local_steps=1).params == pytest.approx([1.84], rel=1e-12)


def test_without_direction_and_decay_and_with_one_weight_per_array_it_is_adam_with_synchronised_state():
    """The mean of a block of one weight is its second moment, and m restarts in both."""
    task = ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]], start=[2.0], weights=W, noise=1.0)
    run = lambda method: ft.train(task, method, rounds=5, local_steps=STEPS, seed=3).params
    plain = ft.methods.fedadamw(0.05, alpha=0.0, weight_decay=0.0)
    synchronised = ft.fedopt(ft.client.adam(0.05, epsilon=1e-8), correction="none", client_state="sync")
    np.testing.assert_allclose(run(plain), run(synchronised), rtol=1e-12)


def test_one_number_per_array_travels_for_the_second_moments():
    model = ft.tasks.from_arrays(
        [{"x": np.zeros((4, 1), np.float32)}] * 2,
        init=lambda key: {"a": np.zeros(5, np.float32), "b": np.zeros((2, 3), np.float32)},
        loss=lambda params, example: sum(((leaf - example["x"][0]) ** 2).sum() for leaf in params.values()),
        batch_size=2,
    )
    history = ft.train(model, ft.methods.fedadamw(0.1), rounds=1, cohort=1).history
    assert history["bytes_up"][0] == 4 * (
        11 + 2 + 3
    )  # 11 weights, 2 blocks; its steps, γ_i times these, its share of decay
    assert history["bytes_down"][0] == 4 * (2 * 11 + 2 + 1)  # weights and direction; the steps so far


def test_equal_rate_multipliers_are_a_client_rate():
    """d is what a step of rate η moved over η: with γ_i = 2 in it, clients that step by γ_i η d would add it up."""
    slow, fast = {"client_rate": 0.005}, {"client_rate": 0.01}
    doubled, plain = (
        ft.train(
            unequal_clients.task(), ft.methods.fedadamw(**rate), rounds=20, local_steps=3, rate_multipliers=[by] * 4
        )
        for rate, by in ((slow, 2.0), (fast, 1.0))
    )
    np.testing.assert_allclose(doubled.params, plain.params, rtol=1e-12)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="fedadamw: alpha must be a finite number at least 0, not -1"):
        ft.methods.fedadamw(0.1, alpha=-1)
    with pytest.raises(ValueError, match="adam: weight_decay must be a finite number at least 0, not -1"):
        ft.methods.fedadamw(0.1, weight_decay=-1)
