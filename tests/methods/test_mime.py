"""Mime: the server's statistics are fixed during local steps, whose gradients are corrected on the same batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from tests.cases import quick

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}
CLIENTS = ((2.0, 1.0, 2), (4.0, -1.0, 3))  # h_i, m_i and τ_i: F_1 = (x−1)², F_2 = 2 (x+1)²
ETA, BETA, V = 0.1, 0.5, 4.0

# (client optimizer, its step from the corrected gradient d and the server's s = (m, v), s after c)
OPTIMIZERS = {
    "sgd": (ft.client.sgd(ETA), lambda d, m, v: d, lambda c, m, v: (m, v)),
    "momentum": (
        ft.client.momentum(ETA, beta=BETA),
        lambda d, m, v: BETA * m + (1 - BETA) * d,
        lambda c, m, v: (BETA * m + (1 - BETA) * c, v),
    ),
    "adagrad": (
        ft.client.adagrad(ETA, epsilon=0.0, initial_accumulator=V),
        lambda d, m, v: d / np.sqrt(v),
        lambda c, m, v: (m, v + c**2),
    ),
    "rmsprop": (
        ft.client.rmsprop(ETA, beta2=0.9, epsilon=0.0, initial_accumulator=V),
        lambda d, m, v: d / np.sqrt(v),
        lambda c, m, v: (m, 0.9 * v + 0.1 * c**2),
    ),
    "adam": (
        ft.client.adam(ETA, BETA, 0.9, epsilon=0.0, initial_accumulator=V, bias_correction=False),
        lambda d, m, v: (BETA * m + (1 - BETA) * d) / np.sqrt(v),
        lambda c, m, v: (BETA * m + (1 - BETA) * c, 0.9 * v + 0.1 * c**2),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_rounds_by_hand(name):
    """From x = 2 with m = 0, v = 4: y ← y − η step(g_i(y) − g_i(x) + c, s), then s by c = mean g_i(x)."""
    client, step, updated = OPTIMIZERS[name]
    x, m, v = 2.0, 0.0, V
    for _ in range(2):
        c = (2 * (x - 1) + 4 * (x + 1)) / 2  # 7 in the first round
        ends = []
        for h, minimum, steps in CLIENTS:
            y = x
            for _ in range(steps):
                y = y - ETA * step(h * (y - minimum) - h * (x - minimum) + c, m, v)  # s is the server's
            ends.append(y)
        (m, v), x = updated(c, m, v), np.mean(ends)
    result = ft.train(ft.tasks.quadratic(**TWO), ft.methods.mime(client), rounds=2, local_steps=[2, 3])
    assert result.params == pytest.approx([x], rel=1e-12)


@pytest.mark.parametrize("name", quick(OPTIMIZERS, "momentum", "adam"))
def test_the_statistics_do_not_depend_on_the_local_steps(name):
    """s' is a function of s and c, and c of x: one step or seven, the same bits."""

    def statistics_after_one_round(steps):
        with float64():
            simulation = ft.Simulation(
                ft.tasks.quadratic(**TWO), ft.methods.mime(OPTIMIZERS[name][0]), local_steps=steps
            )
            return simulation.round(simulation.start())[0].server.shared

    one, seven = statistics_after_one_round(1), statistics_after_one_round(7)
    jax.tree.map(np.testing.assert_array_equal, one, seven)
    assert one["gradient"] == pytest.approx([7.0])


@pytest.mark.parametrize("client", [ft.client.sgd(0.01), ft.client.momentum(0.01)], ids=["sgd", "momentum"])
def test_unequal_steps_reach_the_minimiser_at_a_constant_rate_and_fedavg_does_not(client):
    """At x*, c = Σ w_i ∇F_i = 0, and y = x* stays: g_i(y) − g_i(x*) = 0; the momentum is an average of c's."""
    task = ft.tasks.quadratic(
        [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]], weights=[0.2, 0.5, 0.3]
    )
    result = ft.train(task, ft.methods.mime(client), rounds=2000, local_steps=[1, 7, 3])
    np.testing.assert_allclose(result.params, task.minimiser, atol=1e-9)
    fedavg = ft.train(task, ft.methods.fedavg(0.01), rounds=2000, local_steps=[1, 7, 3]).params
    assert np.linalg.norm(fedavg - task.minimiser) > 0.1


def test_noise_enters_local_steps_through_c_only():
    """The noise of a batch is in g(y; ζ) and in g(x; ζ): y − x follows d' = d − η (h d + c), whatever the noise.

    So x' − x = −c (1 − (1 − η h)^τ) / h.
    """
    h, eta, steps = 3.0, 0.1, 5
    noisy = ft.tasks.quadratic([[h]], [[1.0]], start=[2.0], noise=2.0)
    with float64():
        simulation = ft.Simulation(noisy, ft.methods.mime(ft.client.sgd(eta)), local_steps=steps)
        state, _ = simulation.round(simulation.start())
        c = float(state.server.shared["gradient"][0])
        moved = float(state.server.params[0]) - 2.0
    assert moved == pytest.approx(-c * (1 - (1 - eta * h) ** steps) / h, rel=1e-12)
    assert abs(c - h) > 0.01  # ∇F(2) = 3


def test_c_counts_every_example_once():
    """Three examples in batches of two: c = −mean(1, 2, 6) at 0, as in one large batch."""
    for batch_size in (2, 3):
        task = ft.tasks.from_arrays(
            [{"x": np.array([[1.0], [2.0], [6.0]])}],
            init=lambda key: jnp.zeros(1),
            loss=lambda params, example: jnp.sum((params - example["x"]) ** 2) / 2,
            batch_size=batch_size,
            shuffle=False,
        )
        simulation = ft.Simulation(task, ft.methods.mime(ft.client.sgd(0.0)))
        state, _ = simulation.round(simulation.start())
        assert float(state.server.shared["gradient"][0]) == pytest.approx(-3.0)


@pytest.mark.parametrize("method", ["mime", "mimelite"])
def test_a_client_that_begins_with_a_state_of_its_own_is_refused(method):
    own = ft.client.preconditioned([[1.0], [9.0]], 0.01)
    with pytest.raises(ValueError, match="begins with a state of its own at every client"):
        ft.train(ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]]), ft.methods.METHODS[method](own), rounds=1)


def test_bytes_of_both_phases():
    """Of one weight in float64: up c and the update; down x, then x, c and m."""
    method = ft.methods.mime(ft.client.momentum(0.01))
    history = ft.train(ft.tasks.quadratic(**TWO), method, rounds=1, local_steps=1).history
    assert (history["bytes_up"][0], history["bytes_down"][0]) == (2 * 8 * 2, 2 * 8 * 4)  # 2 clients


def test_diagnosis_refuses_a_round_of_two_phases(tmp_path):
    ft.train(ft.tasks.quadratic(**TWO), ft.methods.mime(ft.client.sgd(0.1)), rounds=2, out=tmp_path)
    with pytest.raises(ValueError, match="'mime' cannot be decomposed"):
        ft.diagnose(tmp_path)
