"""Weights whose gradient is zero in many batches: what a corrected client reports of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm import linear
from fedtrue.algorithm.trace import TRACES, Step

COORDINATES = 20_000  # independent copies of one weight: E[Δ/N] to 0.5 %
OPTIMIZERS = {
    "adagrad": ft.client.adagrad(1.0),
    "adam": ft.client.adam(1.0),
    "rmsprop": ft.client.rmsprop(1.0, beta2=0.999),
    "yogi": ft.client.yogi(1.0),
    "amsgrad": ft.client.amsgrad(1.0),
}


def reported(optimizer, trace, gradients):
    """Δ/(η N) after these gradients (steps, …), which do not depend on the weights."""

    def step(state, g):
        memory, optimizer_state, n, moved = state
        p, optimizer_state = optimizer.precondition(g, optimizer_state)
        own, memory = optimizer.move.step(g, p, optimizer_state, memory)
        return (memory, optimizer_state, trace.update(optimizer, Step(g, p, optimizer_state), n), moved + own), None

    x = gradients[0]
    optimizer_state = optimizer.init(x, 0)
    n = trace.init(optimizer, x, optimizer_state, trace.init_memory(optimizer, x, False))
    state = optimizer.move.init(x), optimizer_state, n, jnp.zeros_like(x)
    (_, _, n, moved), _ = jax.lax.scan(step, state, gradients)
    return linear.apply(linear.inverse(trace.total(n)), moved)


def share(optimizer, trace, *, q, steps, g):
    """E[Δ/N] / (η G) of a weight whose gradient is g in a share q of the batches and 0 in the others."""
    present = np.random.default_rng(0).random((steps, COORDINATES)) < q
    return float(
        jax.jit(lambda gradients: reported(optimizer, trace, gradients))(g * jnp.float32(present)).mean() / (q * g)
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [10, 50])
@pytest.mark.parametrize("q", [0.05, 0.2, 0.5, 0.8])
def test_a_gradient_that_is_often_zero_is_reported_nearly_in_full(name, steps, q):
    for g in (0.01, 1.0):
        assert 0.85 <= share(OPTIMIZERS[name], TRACES["first_gradient"](), q=q, steps=steps, g=g) <= 1.15


def test_with_a_short_memory_much_is_lost_under_every_trace():
    """With β₂ = 0.9 v forgets a gradient within ten steps: P is large again when nothing is multiplied by it."""
    of = lambda trace: share(ft.client.rmsprop(1.0), TRACES[trace](), q=0.05, steps=50, g=1.0)
    assert of("first_gradient") == pytest.approx(0.67, abs=0.02)
    assert of("exact") < 0.2


def test_under_the_exact_trace_it_is_not():
    """The numbers of docs/mathematics.md: one step with P = 1/ε makes N ≈ 1/ε."""
    of = lambda steps, q: share(OPTIMIZERS["adam"], TRACES["exact"](), q=q, steps=steps, g=1.0)
    assert of(10, 0.05) == pytest.approx(0.23, abs=0.02)
    assert of(50, 0.05) == pytest.approx(0.08, abs=0.02)


@pytest.mark.parametrize(
    "gradients, mean", [([1.0, 1.0, 1.0], 1.0), ([0.0, 1.0, 1.0], 2 / 3), ([0.0, 0.0, 1.0], 1 / 3)]
)
def test_steps_before_the_first_gradient_count_with_the_first_preconditioner(gradients, mean):
    """SGD with P = 1 reports the mean; a lone gradient after zeros is reported by Adam as if P had been constant."""
    x = jnp.asarray(gradients)[:, None]
    assert float(reported(ft.client.sgd(1.0), TRACES["first_gradient"](), x)[0]) == pytest.approx(mean)
    no_momentum = ft.client.adam(1.0, beta1=0.0, bias_correction=False)
    own = float(reported(no_momentum, TRACES["first_gradient"](), x)[0])
    assert own == pytest.approx(mean, rel=0.15)
    exact = float(reported(no_momentum, TRACES["exact"](), x)[0])
    assert exact == pytest.approx(1.0) if 0.0 not in gradients else exact < 1e-4
