"""FedPD: augmented Lagrangians of all clients; `test_full_participation.py` has what it shares with FedSplit."""

import numpy as np
import pytest

import fedtrue as ft
from tests.methods.unequal_clients import STEPS, task


def test_two_rounds_by_hand():
    """The published equations: F_1 = (x−1)², F_2 = 2 (x+1)², from x = 2 with λ = 0; s = 0.2, η = 0.1, two steps."""
    s, eta, x, dual = 0.2, 0.1, 2.0, [0.0, 0.0]
    for _ in range(2):
        copies = []
        for i, (hessian, minimum) in enumerate(((2.0, 1.0), (4.0, -1.0))):
            y = x
            for _ in range(2):
                y = y - eta * (hessian * (y - minimum) + dual[i] + (y - x) / s)
            dual[i] = dual[i] + (y - x) / s
            copies.append(y + s * dual[i])
        x = np.mean(copies)
    two = ft.tasks.quadratic([[2.0], [4.0]], [[1.0], [-1.0]], start=[2.0])
    result = ft.train(two, ft.methods.fedpd(ft.client.sgd(eta), step_size=s), rounds=2, local_steps=2)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_it_is_feddyn_with_all_clients_bit_for_bit():
    """h_i = −λ_i and a = 1/s."""
    run = lambda method: ft.train(task(noise=1.0), method, rounds=5, local_steps=STEPS, seed=3).params
    client = ft.client.adam(0.01)
    np.testing.assert_array_equal(
        run(ft.methods.fedpd(client, step_size=0.25)), run(ft.methods.feddyn(client, alpha=4.0))
    )
