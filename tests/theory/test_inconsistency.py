"""The parts of a fixed point's distance from the minimiser: lasting bias, drift, gradient noise, small cohorts."""

import jax
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from fedtrue.theory import cohort, cohort_bias, inconsistency, minimiser, pseudo_gradient, shrinkage

# |∇F_i| differ at the minimum, so Adagrad scales client 0 and the other two differently.
THREE = {"hessians": [[1.0], [1.0], [2.0]], "minima": [[6.0], [-1.0], [-2.0]]}
HERE = np.array([0.4])  # not a fixed point


@pytest.fixture(scope="module")
def noiseless_adagrad():
    def of(correction):
        return inconsistency(
            ft.tasks.quadratic(**THREE), lambda rate: ft.fedopt(ft.client.adagrad(rate), correction=correction), 0.05, 4
        )

    return {correction: of(correction) for correction in ("none", "joint")}


def test_the_parts_add_up_to_the_whole(noiseless_adagrad):
    for found in noiseless_adagrad.values():
        parts = found.lasting + found.vanishing + found.noise
        np.testing.assert_allclose(found.fixed_point - found.minimiser, parts, atol=1e-14)


def test_uncorrected_adagrad_has_a_bias_that_no_learning_rate_removes(noiseless_adagrad):
    found = noiseless_adagrad["none"].norms()
    assert found["lasting"] > 0.5
    assert found["vanishing"] < 0.1 * found["lasting"]


def test_with_the_joint_correction_only_the_vanishing_part_remains(noiseless_adagrad):
    found = noiseless_adagrad["joint"]
    assert found.norms()["lasting"] < 1e-7
    assert found.norms()["vanishing"] > 1e-3
    assert found.extrapolation_error < 1e-6


def test_two_equal_clients_do_not_bias_adagrad_in_the_limit():
    # ∇F₁ = −∇F₂ at the minimum: equal preconditioners. The bias needs three clients, or unequal steps or weights
    found = inconsistency(
        ft.tasks.quadratic(), lambda rate: ft.fedopt(ft.client.adagrad(rate), correction="none"), 0.01, 4
    )
    assert found.norms()["lasting"] < 1e-4


def test_gradient_noise_biases_corrected_adagrad_by_more_than_chance_explains():
    noisy = ft.tasks.quadratic(**THREE, noise=3.0)
    found = inconsistency(noisy, lambda rate: ft.fedopt(ft.client.adagrad(rate)), 1e-3, 10, samples=10_000)
    assert abs(found.noise[0]) > 5 * found.noise_standard_error[0]
    assert found.norms()["noise"] > 5 * found.norms()["vanishing"]


@pytest.mark.parametrize(
    ("client", "noise", "mean_of_ratios", "ratio_of_means"),
    [
        (ft.client.adagrad(0.1), 1.0, 0.861, None),
        (ft.client.adagrad(0.1), 3.0, 0.781, None),
        (ft.client.adam(0.1), 1.0, 0.886, None),
        (ft.client.adam(0.1), 3.0, 0.848, None),
        (ft.client.adagrad(0.1, lagged=True), 1.0, 1.082, 1.0),  # P_k and g_k are independent: E[ΣPg] = G E[ΣP]
        (ft.client.adagrad(0.1, lagged=True), 3.0, 1.119, 1.0),
        (ft.client.sgd(0.1), 3.0, 1.0, 1.0),
    ],
)
def test_noise_shrinks_the_update_of_an_adaptive_client(client, noise, mean_of_ratios, ratio_of_means):
    found = shrinkage(client, gradient=1.0, noise=noise, steps=10, samples=400_000)
    # the expected numbers: `shrinkage` itself with 2,000,000 samples, standard error at most 0.0016
    assert found.mean_of_ratios == pytest.approx(mean_of_ratios, abs=0.012)
    if ratio_of_means is not None:
        assert found.ratio_of_means == pytest.approx(ratio_of_means, abs=0.012)


def test_without_noise_nothing_shrinks():
    found = shrinkage(ft.client.adam(0.1), gradient=2.0, noise=0.0, steps=5, samples=10)
    assert found.mean_of_ratios == pytest.approx(1.0, abs=1e-12)


@pytest.fixture(scope="module")
def joint_by_cohort():
    rng = np.random.default_rng(0)
    task = ft.tasks.quadratic(np.exp(rng.normal(size=(6, 1))), rng.normal(size=(6, 1)))
    return {n: cohort_bias(task, ft.fedopt(ft.client.adagrad(0.01)), n, 3, at=HERE) for n in (1, 3)}, task


def test_the_ratio_bias_of_the_joint_correction_decreases_with_the_cohort(joint_by_cohort):
    shifts = {n: np.linalg.norm(found.shift) for n, found in joint_by_cohort[0].items()}
    assert shifts[1] > 2 * shifts[3] > 0.01


def test_the_joint_correction_has_no_effect_with_one_client_per_round(joint_by_cohort):
    by_cohort, task = joint_by_cohort
    with float64():
        uncorrected = jax.jit(pseudo_gradient(task, ft.fedopt(ft.client.adagrad(0.01), correction="none"), 3))(HERE)
    np.testing.assert_allclose(by_cohort[1].mean_over_cohorts, uncorrected, rtol=1e-9)  # (Δ/N) / (1/N) = Δ


def test_the_local_correction_has_no_ratio_bias(joint_by_cohort):
    method = ft.fedopt(ft.client.adagrad(0.01), correction="local")
    found = cohort_bias(joint_by_cohort[1], method, 2, 3, at=HERE)
    np.testing.assert_allclose(found.mean_over_cohorts, found.full_participation, rtol=1e-9)


@pytest.mark.parametrize("enumerated", [20_000, 0])
def test_sampling_by_size_has_the_mean_of_full_participation_weighted_by_size(joint_by_cohort, monkeypatch, enumerated):
    """E of a mean of draws, client i with probability q_i, is Σ q_i Δ_i: a client drawn twice counts twice."""
    monkeypatch.setattr(cohort, "MAX_ENUMERATED_COHORTS", enumerated)
    sizes = [1.0, 2.0, 4.0, 0.0, 3.0, 1.0]
    whole = joint_by_cohort[1]
    task = ft.tasks.quadratic(whole.hessians, whole.minima, weights=sizes)
    local = {"client": ft.client.adagrad(0.01), "correction": "local"}
    drawn = cohort_bias(task, ft.fedopt(**local, sampling="by_size"), 2, 3, at=HERE)
    weighed = cohort_bias(task, ft.fedopt(**local, weighting="examples"), len(sizes), 3, at=HERE)
    np.testing.assert_allclose(drawn.full_participation, weighed.full_participation, rtol=1e-9)
    np.testing.assert_allclose(
        drawn.mean_over_cohorts, weighed.full_participation, rtol=1e-9, atol=4 * drawn.standard_error.max()
    )
    assert (drawn.standard_error.max() > 0) == (enumerated == 0)


def test_the_minimiser_of_any_task_is_the_fixed_point_of_one_full_batch_step():
    targets = [np.array([1.0, 3.0]), np.array([5.0])]
    task = ft.tasks.from_arrays(
        [{"target": t[:, None]} for t in targets],
        init=lambda key: np.zeros(1),
        loss=lambda x, example: ((x - example["target"]) ** 2).sum() / 2,
        batch_size=1,
    )
    assert minimiser(task) == pytest.approx(3.0)  # weights by examples: (1 + 3 + 5) / 3
