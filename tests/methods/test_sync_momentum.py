"""sync_momentum: clients start a round from the mean weights and the mean momentum buffer."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64

TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}
ETA, BETA = 0.05, 0.5


def local_steps(h, minimum, steps, y, m):
    """m ← β m + h (y − minimum),  y ← y − η m."""
    for _ in range(steps):
        m = BETA * m + h * (y - minimum)
        y = y - ETA * m
    return y, m


def test_three_rounds_of_two_clients_by_hand():
    """F_1 = (x−1)² with 2 steps, F_2 = 2 (x+1)² with 3 steps: x and u are means over both after every round."""
    x, u = 2.0, 0.0
    with float64():
        simulation = ft.Simulation(
            ft.tasks.quadratic(**TWO), ft.methods.sync_momentum(ETA, beta=BETA), local_steps=[2, 3]
        )
        state = simulation.start()
        for _ in range(3):
            x, u = np.mean([local_steps(2.0, 1.0, 2, x, u), local_steps(4.0, -1.0, 3, x, u)], axis=0)
            state, _ = simulation.round(state)
            assert state.server.params == pytest.approx([x], rel=1e-12)
            assert state.server.shared["move"] == pytest.approx([u], rel=1e-12)


def test_means_are_weighted_as_the_objective():
    x, u, w = 2.0, 0.0, np.array([0.25, 0.75])
    for _ in range(3):
        x, u = w @ [local_steps(2.0, 1.0, 2, x, u), local_steps(4.0, -1.0, 3, x, u)]
    task = ft.tasks.quadratic(**TWO, weights=[0.25, 0.75])
    result = ft.train(task, ft.methods.sync_momentum(ETA, beta=BETA), rounds=3, local_steps=[2, 3])
    assert result.params == pytest.approx([x], rel=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_one_client_is_momentum_sgd_without_restarts(nesterov):
    """Four rounds of three steps are twelve steps in one sequence; `fedopt` restarts its momentum every round."""
    y, m = 5.0, 0.0
    for _ in range(12):
        g = 2 * (y - 1)
        m = BETA * m + g
        y = y - ETA * (BETA * m + g if nesterov else m)
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[5.0])
    run = lambda method: ft.train(one, method, rounds=4, local_steps=3).params
    assert run(ft.methods.sync_momentum(ETA, beta=BETA, nesterov=nesterov)) == pytest.approx([y], rel=1e-12)
    restarting = ft.client.momentum(ETA, BETA, dampening=0.0, nesterov=nesterov)
    assert abs(run(ft.fedopt(restarting, correction="none"))[0] - y) > 0.01


def test_without_momentum_it_is_fedavg_bit_for_bit():
    task = ft.tasks.quadratic(noise=1.0)
    run = lambda method: ft.train(task, method, rounds=10, local_steps=[2, 7], seed=3).params
    np.testing.assert_array_equal(run(ft.methods.sync_momentum(0.01, beta=0.0)), run(ft.methods.fedavg(0.01)))


def test_bytes_count_weights_and_buffer_both_ways():
    history = ft.train(ft.tasks.quadratic(**TWO), ft.methods.sync_momentum(0.01), rounds=1).history
    for way in ("bytes_up", "bytes_down"):
        assert history[way][0] == 2 * 2 * 8  # 2 clients × (x, m) × 8 bytes


def test_diagnosis_leaves_out_the_momentum_of_earlier_rounds(tmp_path):
    """One client without noise moves by N ∇F in the frozen round; with the buffer of earlier rounds it moves more."""
    one = ft.tasks.quadratic([[2.0]], [[1.0]], start=[5.0])
    ft.train(one, ft.methods.sync_momentum(ETA, beta=BETA), rounds=3, local_steps=3, out=tmp_path)
    numbers = ft.diagnose(tmp_path, orders=2).diagnosis.numbers
    assert numbers.pieces["noise"].norm < 1e-9 * numbers.clients_scale  # with the buffer: 0.9 of it
