"""Two steps of Muon and Shampoo, computed by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64


def steps(optimizer, gradients):
    """The steps for a sequence of gradients."""
    with float64():
        gradients = jnp.asarray(gradients, float)
        state, memory, out = optimizer.init(gradients[0], 0), optimizer.move.init(gradients[0]), []
        for g in gradients:
            p, state = optimizer.precondition(g, state)
            step, memory = optimizer.move.step(g, p, state, memory)
            out.append(np.asarray(step))
        return np.stack(out)


TALL = np.array([[[0, 6], [0, 8], [0, 0]], [[0, 7], [0, 12], [0, 0]]])
MUON = ft.client.muon(1.0, beta=0.5, epsilon=11.0)


def test_muon():
    first, second = steps(MUON, TALL)
    # m = g/2, its second column (3, 4, 0); mᵀm + 11 I = diag(11, 25 + 11), P = diag(1/√11, 1/6)
    np.testing.assert_allclose(first, [[0, 3 / 6], [0, 4 / 6], [0, 0]])
    # m = (3, 4, 0)/2 + (7, 12, 0)/2 = (5, 8, 0); mᵀm + 11 I = diag(11, 89 + 11), P = diag(1/√11, 1/10)
    np.testing.assert_allclose(second, [[0, 5 / 10], [0, 8 / 10], [0, 0]])


def test_a_wide_matrix_is_preconditioned_on_the_left_and_steps_as_its_transpose():
    np.testing.assert_allclose(steps(MUON, TALL.transpose(0, 2, 1)), steps(MUON, TALL).transpose(0, 2, 1))


def test_the_axes_of_a_kernel_but_the_last_are_its_rows():
    rng = np.random.default_rng(0)
    kernels = rng.normal(size=(2, 3, 3, 2, 4))
    for optimizer in (MUON, ft.client.shampoo(1.0), ft.client.shampoo(1.0, sides="both")):
        as_matrices = steps(optimizer, kernels.reshape(2, 18, 4))
        np.testing.assert_allclose(steps(optimizer, kernels), as_matrices.reshape(kernels.shape), rtol=1e-12)


def test_shampoo_on_one_side():
    first, second = steps(
        ft.client.shampoo(1.0, epsilon=1e-15, initial_accumulator=5.0), [[[0, 2], [0, 0]], [[0, 0], [0, 4]]]
    )
    np.testing.assert_allclose(first, [[0, 2 / 3], [0, 0]])  # R = diag(5, 5 + 2²), P = diag(1/√5, 1/3)
    np.testing.assert_allclose(second, [[0, 0], [0, 4 / 5]])  # R = diag(5, 9 + 4²), P = diag(1/√5, 1/5)


def test_shampoo_on_both_sides():
    both = ft.client.shampoo(1.0, epsilon=1e-15, initial_accumulator=5.0, sides="both")
    first, second = steps(both, [[[0, 2], [0, 0]], [[0, 0], [0, 4]]])
    # L = diag(5 + 2², 5), R = diag(5, 5 + 2²): 2 · 9^(−1/4) · 9^(−1/4)
    np.testing.assert_allclose(first, [[0, 2 / 3], [0, 0]])
    # L = diag(9, 5 + 4²), R = diag(5, 9 + 4²): 4 · 21^(−1/4) · 25^(−1/4)
    np.testing.assert_allclose(second, [[0, 0], [0, 4 / (21 * 25) ** 0.25]])


def test_a_full_rank_momentum_is_orthogonalised():
    gradients = np.random.default_rng(1).normal(size=(2, 5, 3))
    for step in steps(ft.client.muon(1.0, epsilon=1e-14), gradients):
        np.testing.assert_allclose(step.T @ step, np.eye(3), atol=1e-9)  # all singular values are 1


@pytest.mark.parametrize("optimizer", [ft.client.muon(1.0), ft.client.shampoo(1.0)], ids=["muon", "shampoo"])
def test_steps_turn_with_the_gradients(optimizer):
    """No basis of rows or columns is special: gradients Q G R have the steps Q S R. Adagrad and Adam lack this."""
    rng = np.random.default_rng(2)
    gradients = rng.normal(size=(3, 4, 3))
    q, r = np.linalg.qr(rng.normal(size=(4, 4)))[0], np.linalg.qr(rng.normal(size=(3, 3)))[0]
    np.testing.assert_allclose(steps(optimizer, q @ gradients @ r), q @ steps(optimizer, gradients) @ r, atol=1e-10)


def test_vectors_step_as_with_adam_and_adagrad():
    gradients = np.random.default_rng(3).normal(size=(4, 3))
    adam = steps(ft.client.adam(1.0, beta1=0.8, beta2=0.9), gradients)
    np.testing.assert_allclose(steps(ft.client.muon(1.0, beta=0.8, beta2=0.9), gradients), adam)
    np.testing.assert_allclose(steps(ft.client.muon(1.0, beta=0.8, beta2=0.9, vector_rate=0.1), gradients), adam / 10)
    np.testing.assert_allclose(steps(ft.client.shampoo(1.0), gradients), steps(ft.client.adagrad(1.0), gradients))


def test_shampoo_on_both_sides_of_a_large_matrix_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r'm n ≤ 512.*\(30, 20\) has 600: use sides="one"'):
        ft.client.shampoo(1.0, sides="both").init(jnp.zeros((30, 20)), 0)
