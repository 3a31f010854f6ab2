"""MimeLite: the server's statistics are fixed during local steps and updated by the mean gradient at its weights."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}


def test_two_rounds_of_momentum_by_hand():
    """F_1 = (x−1)², F_2 = 2 (x+1)², x = 2, m = 0, β = 0.5, η = 0.1; two local steps y ← y − η (β m + (1−β) g(y))."""
    beta, eta, x, m = 0.5, 0.1, 2.0, 0.0
    for _ in range(2):
        ends = []
        for h, minimum in ((2.0, 1.0), (4.0, -1.0)):
            y = x
            for _ in range(2):
                y = y - eta * (beta * m + (1 - beta) * h * (y - minimum))  # m is the server's, not the client's
            ends.append(y)
        gradient = (2 * (x - 1) + 4 * (x + 1)) / 2  # at the server's weights
        m = beta * m + (1 - beta) * gradient
        x = np.mean(ends)
    method = ft.methods.mimelite(ft.client.momentum(eta, beta=beta))
    result = ft.train(ft.tasks.quadratic(**TWO), method, rounds=2, local_steps=2)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_adaptive_statistics_are_held_fixed_too():
    """Adagrad from v = 4: round 1 divides by √4; then v = 4 + 7², and round 2 divides by √53."""
    eta, x, v = 0.1, 2.0, 4.0
    for _ in range(2):
        ends = []
        for h, minimum in ((2.0, 1.0), (4.0, -1.0)):
            y = x
            for _ in range(3):
                y = y - eta * h * (y - minimum) / np.sqrt(v)
            ends.append(y)
        v, x = v + ((2 * (x - 1) + 4 * (x + 1)) / 2) ** 2, np.mean(ends)
    method = ft.methods.mimelite(ft.client.adagrad(eta, epsilon=0.0, initial_accumulator=4.0))
    result = ft.train(ft.tasks.quadratic(**TWO), method, rounds=2, local_steps=3)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_the_mean_gradient_counts_every_example_once():
    """Three examples in batches of two: the short batch counts for one example, as in one large batch."""
    examples = np.array([[1.0], [2.0], [6.0]])

    def momentum_after_one_round(batch_size):
        task = ft.tasks.from_arrays(
            [{"x": examples}],
            init=lambda key: jnp.zeros(1),
            loss=lambda params, example: jnp.sum((params - example["x"]) ** 2) / 2,
            batch_size=batch_size,
            shuffle=False,
        )
        simulation = ft.Simulation(task, ft.methods.mimelite(ft.client.momentum(0.0, beta=0.5)))
        state, _ = simulation.round(simulation.start())
        return float(state.server.shared["move"][0])

    assert momentum_after_one_round(2) == pytest.approx(-0.5 * 3.0)  # (1−β) · −mean(1, 2, 6)
    assert momentum_after_one_round(3) == pytest.approx(-0.5 * 3.0)
