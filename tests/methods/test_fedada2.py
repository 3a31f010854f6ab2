"""FedAda²: adaptive clients that begin at v = 0 in every round, an adaptive server, messages of FedAvg."""

import numpy as np
import pytest

import fedtrue as ft

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}  # F_1 = (x−1)², F_2 = 2 (x+1)²
STEPS, W = [2, 3], np.array([0.25, 0.75])
ETA, ALPHA, EPSILON = 0.1, 0.05, 1e-3


def adagrad_steps(h, minimum, steps, y):
    """v = 0 at first; y ← y − η g / √v."""
    v = 0.0
    for _ in range(steps):
        g = h * (y - minimum)
        v = v + g**2
        y = y - ETA * g / np.sqrt(v)
    return y


def test_two_rounds_by_hand():
    """Δ = x − Σ w_i y_i; M ← 0.9 M + 0.1 Δ, V ← 0.999 V + 0.001 Δ², x ← x − α b_t M / (√V + ε), b_t as Keras has it."""
    x, m, v = 2.0, 0.0, 0.0
    for t in (1, 2):
        update = x - W @ [adagrad_steps(2.0, 1.0, 2, x), adagrad_steps(4.0, -1.0, 3, x)]
        m, v = 0.9 * m + 0.1 * update, 0.999 * v + 0.001 * update**2
        x = x - ALPHA * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + EPSILON)
    client = ft.client.adagrad(ETA, epsilon=0.0, initial_accumulator=0.0)
    method = ft.methods.fedada2(client, ALPHA, epsilon=EPSILON)
    result = ft.train(ft.tasks.quadratic(**TWO, weights=W), method, rounds=2, local_steps=STEPS)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_the_first_step_of_both_adams_is_their_learning_rate_times_a_sign():
    """m̂/√v̂ = sign g: the client moves from 2 to 1.9; with ε = 0 the server from 2 to 2 − 0.5, whatever it is sent."""
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[2.0])
    method = ft.methods.fedada2(ft.client.adam(0.1, epsilon=0.0), server_rate=0.5, epsilon=0.0)
    assert ft.train(one, method, rounds=1, local_steps=1).params == pytest.approx([1.5], rel=1e-12)


@pytest.mark.parametrize("correction", ["none", "joint"])
def test_it_is_fedopt_with_adaptive_parts_bit_for_bit(correction):
    task = ft.tasks.quadratic(**TWO, weights=W, noise=1.0)
    run = lambda method: ft.train(task, method, rounds=5, local_steps=STEPS, seed=3).params
    client, server = ft.client.adam(0.05), ft.server.adam(0.1, beta2=0.999, bias_correction=True)
    parts = ft.fedopt(client, server, correction, client_state="restart")
    np.testing.assert_array_equal(run(ft.methods.fedada2(client, correction=correction)), run(parts))


def test_no_preconditioner_travels():
    def traffic(method):
        history = ft.train(ft.tasks.quadratic(**TWO), method, rounds=1, local_steps=1).history
        return history["bytes_up"][0], history["bytes_down"][0]

    assert traffic(ft.methods.fedada2(ft.client.adam(0.1))) == traffic(ft.methods.fedavg(0.1)) == (16, 16)
