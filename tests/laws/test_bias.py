"""Fixed points: the bias that vanishes with the learning rate, and the bias that does not."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.theory import measured_fixed_point

ROUNDS, DISPATCH = 40_000, 1_000


def distances(client, rates, correction, trace, rounds=ROUNDS, task=None, local_steps=(2, 30)):
    """Distance of the end point from the minimiser, one per client rate; all rates train in one program."""
    task = task or ft.tasks.quadratic()
    with float64():
        method_of = lambda rate: ft.fedopt(client(rate), correction=correction, trace=trace)
        simulation = Simulation(task, method_of, grid=jnp.asarray(rates), local_steps=list(local_steps))
        state = simulation.start()
        for _ in range(0, rounds, DISPATCH):
            state, _ = simulation.run(state, DISPATCH)
        return np.linalg.norm(np.asarray(state.server.params) - task.minimiser, axis=1)


def plain_adam(rate):
    return ft.client.adam(rate, bias_correction=False)


# two 2-D quadratics, H = diag(1,30), diag(20,1), minima (2,1), (−1,−2), τ = 2 and 30, start (5,5), server SGD 1
TABLE = [
    (ft.client.sgd, "none", "exact", 0.913, 0.913),
    (ft.client.sgd, "joint", "exact", 0.0428, 0.0040),
    (ft.client.adagrad, "none", "exact", 2.887, 2.888),
    (ft.client.adagrad, "joint", "exact", 0.0043, 0.00043),
    (ft.client.adam, "none", "exact", 2.904, 2.906),
    (ft.client.adam, "joint", "paper", 0.138, 0.132),
    (ft.client.adam, "joint", "exact", 0.0094, 0.00093),
    (plain_adam, "joint", "paper", 0.0721, 0.0364),
    (plain_adam, "joint", "exact", 0.0558, 0.0054),
]


SLOW = [row for row in TABLE if row[0] in (ft.client.adagrad, plain_adam) or row[:2] == (ft.client.sgd, "none")]


@pytest.mark.parametrize(
    "client, correction, trace, at_1e_3, at_1e_4",
    [pytest.param(*row, marks=pytest.mark.slow if row in SLOW else ()) for row in TABLE],
)
def test_end_points_equal_those_of_the_reference_table(client, correction, trace, at_1e_3, at_1e_4):
    np.testing.assert_allclose(distances(client, [1e-3, 1e-4], correction, trace), [at_1e_3, at_1e_4], rtol=0.02)


@pytest.mark.parametrize(
    "client, rate", [(ft.client.sgd, 2e-3), (ft.client.adagrad, 2e-3), (ft.client.adam, 1e-3), (ft.client.yogi, 2e-2)]
)
def test_on_a_random_quadratic_the_bias_falls_linearly_with_the_rate_if_and_only_if_corrected(client, rate):
    rng = np.random.default_rng(7)
    roots = rng.normal(size=(3, 3, 3))
    task = ft.tasks.quadratic(roots @ roots.transpose(0, 2, 1) + np.eye(3), rng.normal(size=(3, 3)), start=[0, 0, 0])

    def bias(correction, rate):
        method = ft.fedopt(client(rate), correction=correction)
        return np.linalg.norm(measured_fixed_point(task, method, [1, 3, 8]).params - task.minimiser)

    assert bias("joint", rate / 2) / bias("joint", rate) == pytest.approx(0.5, abs=0.05)  # O(η)
    assert bias("none", rate / 2) / bias("none", rate) == pytest.approx(1.0, abs=0.1)  # O(1)
