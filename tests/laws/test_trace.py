"""Properties of the trace, for every client optimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrue import client
from fedtrue.algorithm import linear
from fedtrue.algorithm.trace import TRACES, Step
from fedtrue.precision import float64

OPTIMIZERS = {
    "sgd": client.sgd(0.1),
    "heavy ball": client.momentum(0.1),
    "heavy ball, undamped": client.momentum(0.1, dampening=0.0),
    "nesterov": client.momentum(0.1, nesterov=True),
    "adagrad": client.adagrad(0.1),
    "adagrad, lagged": client.adagrad(0.1, lagged=True),
    "adam": client.adam(0.1),
    "adam, epsilon after correction": client.adam(0.1, epsilon=1e-2, epsilon_after_correction=True),
    "adam, uncorrected": client.adam(0.1, bias_correction=False),
    "adam, lagged": client.adam(0.1, initial_accumulator=0.1, lagged=True),
    "yogi": client.yogi(0.1),
    "rmsprop": client.rmsprop(0.1),
    "amsgrad": client.amsgrad(0.1),
    "adabelief": client.adabelief(0.1, beta1=0.5),
    "dense matrix": client.preconditioned([[[2.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 3.0]]], 0.1),
    "diagonal matrix": client.preconditioned([[2.0, 1.0, 3.0]], 0.1),
}


def preconditioners_along(optimizer, gradients):
    """P_k and the optimizer's states along a sequence of gradients."""
    state, pairs = optimizer.init(gradients[0], 0), []
    for g in gradients:
        p, state = optimizer.precondition(g, state)
        pairs.append((p, state))
    return pairs


def displacement(optimizer, vectors, pairs):
    """Σ_k move(vector_k) for given preconditioners."""
    memory, total = optimizer.move.init(vectors[0]), jnp.zeros_like(vectors[0])
    for v, (p, state) in zip(vectors, pairs):
        step, memory = optimizer.move.step(v, p, state, memory)
        total = total + step
    return total


def trace_of(kind, optimizer, gradients, pairs):
    trace = TRACES[kind]()
    state = trace.init(
        optimizer, gradients[0], optimizer.init(gradients[0], 0), trace.init_memory(optimizer, gradients[0], False)
    )
    for g, (p, optimizer_state) in zip(gradients, pairs):
        state = trace.update(optimizer, Step(g, p, optimizer_state), state)
    return trace.total(state)


@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**31), steps=st.integers(1, 7))
def test_weights_of_the_gradients_sum_to_the_identity_under_the_exact_trace(name, seed, steps):
    optimizer = OPTIMIZERS[name]
    with float64():
        gradients = jnp.asarray(np.random.default_rng(seed).normal(size=(steps, 3)))
        pairs = preconditioners_along(optimizer, gradients)
        inverse = linear.inverse(trace_of("exact", optimizer, gradients, pairs))
        basis = jnp.eye(3)
        # Σ_k A_k e is the displacement under the constant gradient e, with fixed P_k
        total = jnp.stack(
            [linear.apply(inverse, displacement(optimizer, jnp.broadcast_to(e, (steps, 3)), pairs)) for e in basis]
        )
        np.testing.assert_allclose(total, basis, atol=1e-10)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dividing_by_the_trace_of_one_step_recovers_the_gradient(name):
    optimizer = OPTIMIZERS[name]
    with float64():
        gradients = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3)))
        pairs = preconditioners_along(optimizer, gradients)
        inverse = linear.inverse(trace_of("exact", optimizer, gradients, pairs))
        np.testing.assert_allclose(linear.apply(inverse, displacement(optimizer, gradients, pairs)), gradients[0])


def test_a_move_is_linear_in_the_gradients_once_the_preconditioners_are_given():
    with float64():
        rng = np.random.default_rng(1)
        a, b = jnp.asarray(rng.normal(size=(2, 6, 3)))
        for optimizer in OPTIMIZERS.values():
            pairs = preconditioners_along(optimizer, a)
            left = displacement(optimizer, 2 * a - 3 * b, pairs)
            right = 2 * displacement(optimizer, a, pairs) - 3 * displacement(optimizer, b, pairs)
            np.testing.assert_allclose(left, right, atol=1e-10)


def test_the_papers_trace_weights_the_preconditioners_in_reverse_order():
    """Exact: Σ P_k (1−β^{k+1}); paper: Σ P_k (1−β^{τ−k}). With β = 1/2, two steps:
    exact (1/2) P_0 + (3/4) P_1, paper (3/4) P_0 + (1/2) P_1."""
    optimizer = client.adam(0.1, beta1=0.5, bias_correction=False)
    with float64():
        gradients = jnp.asarray([[1.0], [3.0]])
        pairs = preconditioners_along(optimizer, gradients)
        (p0, _), (p1, _) = pairs
        np.testing.assert_allclose(trace_of("exact", optimizer, gradients, pairs), p0 / 2 + 3 * p1 / 4)
        np.testing.assert_allclose(trace_of("paper", optimizer, gradients, pairs), 3 * p0 / 4 + p1 / 2)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_with_a_gradient_in_the_first_step_the_trace_from_it_is_the_exact_one(name):
    with float64():
        gradients = np.random.default_rng(2).normal(size=(5, 3))
        gradients[2, 1] = 0.0  # later zeros change nothing
        gradients = jnp.asarray(gradients)
        pairs = preconditioners_along(OPTIMIZERS[name], gradients)
        both = [trace_of(kind, OPTIMIZERS[name], gradients, pairs) for kind in ("first_gradient", "exact")]
        np.testing.assert_allclose(*map(jax.tree.leaves, both), rtol=1e-12)


def test_exact_and_paper_traces_agree_without_momentum():
    with float64():
        gradients = jnp.asarray(np.random.default_rng(2).normal(size=(5, 3)))
        for name in ("sgd", "adagrad", "rmsprop", "dense matrix"):
            optimizer = OPTIMIZERS[name]
            pairs = preconditioners_along(optimizer, gradients)
            both = [jax.tree.leaves(trace_of(kind, optimizer, gradients, pairs))[0] for kind in ("exact", "paper")]
            np.testing.assert_allclose(*both)


def test_momentums_trace_is_fednovas_normaliser_times_one_minus_beta():
    """FedNova's ‖a‖₁ for heavy ball over τ steps is (τ − β(1−β^τ)/(1−β)) / (1−β); ours has m' = βm + (1−β)g."""
    beta, steps = 0.9, 6
    optimizer = client.momentum(0.1, beta=beta)
    with float64():
        gradients = jnp.ones((steps, 3))
        total = trace_of("exact", optimizer, gradients, preconditioners_along(optimizer, gradients))
        fednova = (steps - beta * (1 - beta**steps) / (1 - beta)) / (1 - beta)
        np.testing.assert_allclose(jnp.broadcast_to(total, (3,)), (1 - beta) * fednova)


def test_a_trace_of_zero_gives_zero_never_nan():
    diagonal, dense = jnp.asarray([0.0, 2.0]), linear.Dense(jnp.zeros((2, 2)))
    np.testing.assert_array_equal(linear.inverse(diagonal), [0.0, 0.5])
    np.testing.assert_array_equal(linear.inverse(dense).matrix, np.zeros((2, 2)))
    np.testing.assert_array_equal(jax.grad(lambda n: linear.inverse(n).sum())(diagonal)[0], 0.0)
