"""The measured constants of Assumptions 1 and 2 agree with what is proven for SGD on quadratics."""

from importlib import import_module

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.theory import contraction, sgd_contraction, sgd_variance

RATE, STEPS = 0.05, 8
K = np.arange(1, STEPS + 1)


@pytest.fixture(scope="module")
def measured():
    task = ft.tasks.quadratic([[1.0, 4.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]], noise=2.0)
    x, y = np.array([3.0, 1.0]), np.array([2.0, 1.0])  # apart along the soft direction only
    sigma_squared = 2 * 2.0**2  # per coordinate σ², two coordinates
    return contraction(task, ft.client.sgd(RATE), x, y, STEPS, samples=1000, noise_variance=sigma_squared)


def test_sgd_contracts_by_one_minus_eta_mu_along_its_softest_direction(measured):
    for i, mu in enumerate((1.0, 2.0)):
        np.testing.assert_allclose(measured.h[i], sgd_contraction(RATE, mu, K), rtol=1e-9)


def test_the_noise_of_sgd_adds_up_to_its_exact_sum_and_stays_under_eta_squared_k(measured):
    for i, curvatures in enumerate(((1.0, 4.0), (2.0, 3.0))):
        kept = np.array([[(1 - RATE * c) ** (2 * j) for j in range(STEPS)] for c in curvatures])
        exact = RATE**2 * np.cumsum(kept, axis=1).mean(axis=0)  # η² Σ_j (1 − ηλ)^{2j}, mean over λ
        np.testing.assert_allclose(measured.q[i], exact, rtol=0.1)  # 1000 samples of 2 coordinates: about ±3 %
        assert (exact <= sgd_variance(RATE, K)).all()
        assert (measured.q[i] <= 1.1 * sgd_variance(RATE, K)).all()


def test_from_any_two_starts_sgd_contracts_at_least_as_fast_as_proven():
    task = ft.tasks.quadratic([[1.0, 4.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]])
    found = contraction(task, ft.client.sgd(RATE), np.array([3.0, 1.0]), np.array([-1.0, 5.0]), STEPS)
    assert found.q is None
    for i, mu in enumerate((1.0, 2.0)):
        assert (found.h[i] <= sgd_contraction(RATE, mu, K)).all()


def test_equal_starts_are_refused():
    with pytest.raises(ValueError, match="two different starts"):
        contraction(ft.tasks.quadratic(), ft.client.sgd(0.1), np.ones(2), np.ones(2), 3)


def test_batches_of_one_seed_give_the_same_numbers_as_one_batch_of_all_seeds(monkeypatch):
    task = ft.tasks.quadratic([[1.0, 4.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]], noise=2.0)
    module = import_module("fedtrue.theory.contraction")  # fedtrue.theory.contraction is the function
    measure = module.contraction_of(task, ft.client.adagrad(RATE), STEPS)
    x, y = np.array([3.0, 1.0]), np.array([-1.0, 5.0])
    one_batch = measure(x, y, samples=5, noise_variance=8.0)
    monkeypatch.setattr(module, "MAX_PATH_BYTES", 1)
    many_batches = measure(x, y, samples=5, noise_variance=8.0)
    np.testing.assert_allclose(many_batches.h, one_batch.h, rtol=1e-12)
    np.testing.assert_allclose(many_batches.q, one_batch.q, rtol=1e-12)
