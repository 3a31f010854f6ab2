"""FedProx: with mu = 0 it is FedAvg; its pull is in the exact trace."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm import linear
from fedtrue.algorithm.trace import TRACES, Step
from fedtrue.precision import float64

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]]
STEPS = [2, 7, 4]


def test_without_a_pull_it_is_fedavg_bit_for_bit():
    task = ft.tasks.quadratic(HESSIANS, MINIMA, noise=1.0)
    run = lambda method: ft.train(task, method, rounds=20, local_steps=STEPS, cohort=2, seed=3).params
    fedprox = ft.methods.fedprox(ft.client.sgd(0.01), mu=0.0)
    np.testing.assert_array_equal(run(fedprox), run(ft.methods.fedavg(0.01)))


def test_one_round_by_hand():
    """y ← y − η (h (y − m) + μ (y − x)), two steps from x = 5: η = 0.1, h = 2, m = 1, μ = 3."""
    task = ft.tasks.quadratic([[2.0]], [[1.0]], start=[5.0])
    first = 5 - 0.1 * (2 * 4 + 3 * 0)  # 4.2
    second = first - 0.1 * (2 * (first - 1) + 3 * (first - 5))  # 4.2 − 0.1 (6.4 − 2.4) = 3.8
    result = ft.train(task, ft.methods.fedprox(ft.client.sgd(0.1), mu=3.0), rounds=1, local_steps=2)
    assert result.params == pytest.approx([second]) and second == pytest.approx(3.8)


OPTIMIZERS = {
    "sgd": ft.client.sgd(0.1),
    "momentum": ft.client.momentum(0.1),
    "nesterov": ft.client.momentum(0.1, nesterov=True),
    "adagrad": ft.client.adagrad(0.1),
    "adam": ft.client.adam(0.1),
    "dense matrix": ft.client.preconditioned([[[2.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 3.0]]], 0.1),
}


@pytest.mark.parametrize("kind", ["exact", "first_gradient"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_of_the_gradients_sum_to_the_identity_under_the_pull(name, kind):
    """x_{k+1} = x_k − η move(g_k + μ (x_k − x)): for the constant gradient e, x − x_τ = η N e."""
    optimizer, eta, mu, steps = OPTIMIZERS[name], 0.1, 0.7, 6
    with float64():
        gradients = jnp.asarray(np.random.default_rng(0).normal(size=(steps, 3)))
        state, pairs = optimizer.init(gradients[0], 0), []
        for g in gradients:
            p, state = optimizer.precondition(g, state)
            pairs.append((p, state))
        trace = TRACES[kind]()
        memory = trace.init_memory(optimizer, gradients[0], True)
        n = trace.init(optimizer, gradients[0], optimizer.init(gradients[0], 0), memory)
        for g, (p, state) in zip(gradients, pairs):
            n = trace.update(optimizer, Step(g, p, state, mu * eta), n)
        for e in jnp.eye(3):
            moved, memory = jnp.zeros(3), optimizer.move.init(e)
            for p, state in pairs:
                step, memory = optimizer.move.step(e - mu * moved, p, state, memory)
                moved = moved + eta * step
            expected = linear.apply(trace.total(n), e)
            np.testing.assert_allclose(moved / eta, expected, atol=1e-10)


def test_the_corrected_pull_leaves_no_bias_that_a_smaller_rate_does_not_remove():
    """Unequal steps, strong pull: uncorrected the distance stays, with the exact trace it falls with the rate."""
    task = ft.tasks.quadratic(HESSIANS, MINIMA)

    def distance(correction, rate):
        method = ft.methods.fedprox(ft.client.sgd(rate), mu=5.0, correction=correction)
        point = ft.theory.measured_fixed_point(task, method, STEPS).params
        return np.linalg.norm(point - task.minimiser)

    assert distance("none", 1e-4) > 0.5 * distance("none", 1e-3) > 0.1
    assert distance("joint", 1e-4) == pytest.approx(0.1 * distance("joint", 1e-3), rel=0.1)


def test_a_pull_must_be_a_number_of_at_least_0():
    with pytest.raises(ValueError, match="fedprox: mu must be a finite number at least 0, not -1"):
        ft.methods.fedprox(ft.client.sgd(0.1), mu=-1)
