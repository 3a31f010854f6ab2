"""Theorem 2: its closed form equals the measured fixed point; its limit; convergence in one round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtrue as ft
from fedtrue.precision import float64
from fedtrue.theory import (
    closed_form_fixed_point,
    closed_form_limit,
    measured_fixed_point,
    one_round_server_rate,
    round_operator,
)

FEW = settings(max_examples=3, deadline=None)


def spd(rng: np.random.Generator, clients: int, dimension: int) -> np.ndarray:
    """Random symmetric positive definite matrices with eigenvalues in [0.5, 2]."""
    turns = [np.linalg.qr(rng.normal(size=(dimension, dimension)))[0] for _ in range(clients)]
    return np.stack([q @ np.diag(rng.uniform(0.5, 2.0, dimension)) @ q.T for q in turns])


def random_problem(seed: int, dense: bool) -> dict:
    rng = np.random.default_rng(seed)
    clients, dimension = 3, 2
    return {
        "hessians": (spd(rng, clients, dimension) + spd(rng, clients, dimension).transpose(0, 2, 1)) / 2,
        "minima": rng.normal(size=(clients, dimension)),
        "preconditioners": spd(rng, clients, dimension) if dense else rng.uniform(0.3, 2.0, (clients, dimension)),
        "local_steps": rng.integers(1, 6, clients),
        "rate_multipliers": rng.uniform(0.5, 2.0, clients),
        "weights": rng.uniform(0.1, 1.0, clients),
    }


def measured(problem: dict, learning_rate: float, correction: str) -> np.ndarray:
    task = ft.tasks.quadratic(problem["hessians"], problem["minima"], weights=problem["weights"])
    method = ft.fedopt(ft.client.preconditioned(problem["preconditioners"], learning_rate), correction=correction)
    return measured_fixed_point(task, method, problem["local_steps"], problem["rate_multipliers"]).params


@FEW
@given(seed=st.integers(0, 10**6), dense=st.booleans())
def test_theorem_2_equals_the_measured_fixed_point(seed, dense):
    problem = random_problem(seed, dense)
    closed = closed_form_fixed_point(**problem, learning_rate=0.1)
    np.testing.assert_allclose(measured(problem, 0.1, "none"), closed, atol=1e-8)


@FEW
@given(seed=st.integers(0, 10**6))
def test_theorem_2_with_correction_equals_the_measured_fixed_point(seed):
    problem = random_problem(seed, dense=True)
    closed = closed_form_fixed_point(**problem, learning_rate=0.1, corrected=True)
    np.testing.assert_allclose(measured(problem, 0.1, "joint"), closed, atol=1e-8)


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), dense=st.booleans())
def test_the_closed_form_converges_to_its_limit_which_is_the_minimiser_with_correction(seed, dense):
    problem = random_problem(seed, dense)
    near = closed_form_fixed_point(**problem, learning_rate=1e-7)
    np.testing.assert_allclose(closed_form_limit(**problem), near, atol=1e-5)
    task = ft.tasks.quadratic(problem["hessians"], problem["minima"], weights=problem["weights"])
    np.testing.assert_allclose(closed_form_limit(**problem, corrected=True), task.minimiser, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("learning_rate", "local_steps"), [(1.0, 1), (0.3, 4)])
def test_with_inverse_hessians_one_round_reaches_the_fixed_point_and_with_correction_the_minimiser(
    learning_rate, local_steps
):
    rng = np.random.default_rng(0)
    hessians, minima = spd(rng, 3, 2), rng.normal(size=(3, 2))
    task = ft.tasks.quadratic(hessians, minima)
    rate = one_round_server_rate(learning_rate, local_steps)
    client = ft.client.preconditioned(np.linalg.inv(hessians), learning_rate)
    with float64():
        x = jnp.array([5.0, -7.0])
        plain, joint = (
            jax.jit(round_operator(task, ft.fedopt(client, ft.server.sgd(rate), correction=correction), local_steps))(x)
            for correction in ("none", "joint")
        )
    np.testing.assert_allclose(plain, minima.mean(axis=0), rtol=1e-10)  # K_i = (1−η)^τ I for all: x̃ = Σ w_i x_i*
    np.testing.assert_allclose(joint, task.minimiser, rtol=1e-10)  # (Σ w H)⁻¹ Σ w H_i (x − x_i*): Newton's step on F


def test_the_one_round_server_rate_is_one_when_a_local_step_is_newtons():
    assert one_round_server_rate(1.0, [1, 3]) == 1.0  # 1 − (1−1)^τ = 1 for every client
    assert one_round_server_rate(0.5, 2) == pytest.approx(4 / 3)  # 1 / (1 − ¼)


@pytest.mark.parametrize(
    ("client", "correction", "distance"),  # notes.md, table of section 1, η = 1e-3: 40,000 rounds of iteration
    [
        (ft.client.adagrad(1e-3), "none", 2.887),
        (ft.client.adagrad(1e-3), "joint", 0.0043),
        (ft.client.adam(1e-3), "none", 2.904),
        (ft.client.adam(1e-3), "joint", 0.0094),
    ],
)
def test_the_measured_fixed_point_of_adaptive_clients_is_the_end_of_forty_thousand_rounds(client, correction, distance):
    task = ft.tasks.quadratic()
    found = measured_fixed_point(task, ft.fedopt(client, correction=correction), [2, 30])
    assert np.linalg.norm(found.params - task.minimiser) == pytest.approx(distance, abs=6e-4 if distance > 1 else 6e-5)
    assert found.distance < 1e-9


def test_a_method_without_a_fixed_point_is_refused():
    task = ft.tasks.quadratic()
    with pytest.raises(ValueError, match="no fixed point found"):
        measured_fixed_point(task, ft.fedopt(ft.client.sgd(1e200), correction="none"), 5)


def test_sampling_by_size_with_uniform_weights_has_the_fixed_point_of_weights_by_examples():
    """Both give client i a weight proportional to its size: by how often it is drawn, or in the mean."""
    task = ft.tasks.quadratic([[1.0], [2.0]], [[0.0], [3.0]], weights=[3.0, 1.0])
    drawn, weighed, uniform = (
        measured_fixed_point(task, ft.fedopt(ft.client.sgd(0.01), **choice), 2).params
        for choice in ({"sampling": "by_size"}, {"weighting": "examples"}, {"weighting": "uniform"})
    )
    np.testing.assert_allclose(drawn, weighed, rtol=1e-9)
    assert abs(drawn - uniform) > 0.5  # 2·3/(3·1 + 2) = 1.2 against 2·3/(1 + 2) = 2 as the rate vanishes
