"""Local AdaAlter: a denominator that all clients share during a round, and squares that are averaged after it."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}
ETA, EPSILON, START = 0.5, 0.7, 2.0


def local_steps(h, minimum, steps, y, b):
    """y ← y − η g / √(B² + k ε²),  A² ← A² + g²,  k = 1, 2, …"""
    a = b
    for k in range(1, steps + 1):
        g = h * (y - minimum)
        y, a = y - ETA * g / np.sqrt(b + k * EPSILON**2), a + g**2
    return y, a


def test_one_client_follows_the_published_recursion():
    """Three rounds of four steps: k restarts at 1 with every synchronisation, B² keeps all squares."""
    y, b = 5.0, START
    for _ in range(3):
        y, b = local_steps(2.0, 1.0, 4, y, b)
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[5.0])
    method = ft.methods.adaalter(ETA, EPSILON, START)
    assert ft.train(one, method, rounds=3, local_steps=4).params == pytest.approx([y], rel=1e-12)


def test_weights_and_accumulators_are_averaged_after_every_round():
    """F_1 = (x−1)² with 2 steps, F_2 = 2 (x+1)² with 3 steps, weights 1/4 and 3/4."""
    x, b, w = 2.0, START, np.array([0.25, 0.75])
    with float64():
        task = ft.tasks.quadratic(**TWO, weights=w)
        simulation = ft.Simulation(task, ft.methods.adaalter(ETA, EPSILON, START), local_steps=[2, 3])
        state = simulation.start()
        for _ in range(3):
            x, b = w @ [local_steps(2.0, 1.0, 2, x, b), local_steps(4.0, -1.0, 3, x, b)]
            state, _ = simulation.round(state)
            assert state.server.params == pytest.approx([x], rel=1e-12)
            assert state.server.shared == pytest.approx([b], rel=1e-12)


def test_the_exact_trace_removes_the_number_of_steps():
    """For a constant gradient Δ_i = η g_i Σ_k 1/√(B² + k ε²) = η g_i N_i, so the mean of Δ_i / N_i is η mean g_i."""
    examples = [{"x": np.full((4, 2), 3.0)}, {"x": np.full((4, 2), -1.0)}]
    task = ft.tasks.from_arrays(
        examples,
        init=lambda key: {"a": jnp.zeros(2), "b": jnp.zeros(())},
        loss=lambda params, example: jnp.sum(params["a"] * example["x"]) + params["b"],
        batch_size=4,
    )
    method = ft.methods.adaalter(ETA, EPSILON, START, correction="local")
    result = ft.train(task, method, rounds=1, local_steps=[1, 6])
    np.testing.assert_allclose(result.params["a"], [-ETA * (3 - 1) / 2] * 2, rtol=1e-5)
    np.testing.assert_allclose(result.params["b"], -ETA, rtol=1e-5)


def test_bytes_count_weights_and_one_accumulator_both_ways():
    history = ft.train(ft.tasks.quadratic(**TWO), ft.methods.adaalter(0.1), rounds=1).history
    for way in ("bytes_up", "bytes_down"):
        assert history[way][0] == 2 * 2 * 8  # 2 clients × (x, B²) × 8 bytes


@pytest.mark.parametrize("sampling", ["poisson", "optimal(share=0.3)"])
def test_the_accumulator_never_shrinks_whatever_the_sampling(sampling):
    """B² is a mean of states: divided by an expected number of clients it would be multiplied at random every round."""
    equal = ft.tasks.quadratic(np.ones((6, 1)), np.arange(6.0)[:, None], start=[5.0])
    simulation = ft.Simulation(
        equal, ft.methods.adaalter(0.1, sampling=sampling, weighting="uniform"), cohort=3, local_steps=2
    )
    state = simulation.start()
    for _ in range(10):
        before = np.asarray(state.server.shared)
        state, _ = simulation.round(state)
        assert (np.asarray(state.server.shared) >= before * (1 - 1e-6)).all()


def test_an_epsilon_of_0_is_refused():
    with pytest.raises(ValueError, match="adaalter: epsilon must be a finite number above 0, not 0"):
        ft.methods.adaalter(0.1, epsilon=0)
