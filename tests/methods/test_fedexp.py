"""FedExP: the server's step is at least FedAvg's, and longer the less clients agree."""

import numpy as np
import pytest

import fedtrue as ft

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]]
WEIGHTS, STEPS = [0.2, 0.5, 0.3], [2, 7, 4]
EPSILON = 1e-3


def moved_by(method, task, **arguments):
    return np.asarray(task.start) - ft.train(task, method, rounds=1, **arguments).params


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.25, 0.75]], ids=["uniform", "unequal"])
def test_one_round_by_hand(weights):
    """F_1 = 2 (x−1)², F_2 = 2 (x+1.5)², from x = 0, η = 0.1, one step: Δ_1 = −0.4, Δ_2 = 0.6."""
    task = ft.tasks.quadratic([[4.0], [4.0]], [[1.0], [-1.5]], weights=weights, start=[0.0])
    mean = np.dot(weights, [-0.4, 0.6])  # 0.1; 0.35
    squares = np.dot(weights, [0.16, 0.36])  # 0.26; 0.31
    rate = max(1, squares / (2 * (mean**2 + EPSILON)))  # 0.26 / 0.022 = 11.8; 0.31 / 0.247 = 1.255
    assert rate == pytest.approx(11.818 if weights[0] == 0.5 else 1.255, rel=1e-3)
    moved = moved_by(ft.methods.fedexp(ft.client.sgd(0.1), epsilon=EPSILON), task, local_steps=1)
    assert moved == pytest.approx([rate * mean], rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_step_is_never_shorter_than_fedavgs(seed):
    """x − x' = η_g Δ̄ with η_g ≥ 1, the same η_g for all weights."""
    start = 3 * np.random.default_rng(seed).normal(size=2)
    task = ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS, start=start)
    fedexp = moved_by(ft.methods.fedexp(ft.client.sgd(0.01)), task, local_steps=STEPS)
    fedavg = moved_by(ft.methods.fedavg(0.01), task, local_steps=STEPS)
    rates = fedexp / fedavg
    assert rates[0] == pytest.approx(rates[1], rel=1e-9) and rates[0] >= 1 - 1e-12


@pytest.mark.parametrize("cohort", [3, 1])
def test_identical_clients_and_cohorts_of_one_are_fedavg_bit_for_bit(cohort):
    """Σ w ‖Δ‖² / (2 (‖Δ‖² + ε)) < 1/2, so η_g = 1."""
    same = ft.tasks.quadratic([[1.0, 30.0]] * 3, [[2.0, 1.0]] * 3)
    run = lambda method: ft.train(same, method, rounds=10, local_steps=4, cohort=cohort).params
    np.testing.assert_array_equal(run(ft.methods.fedexp(ft.client.sgd(0.01))), run(ft.methods.fedavg(0.01)))


def test_a_large_epsilon_is_fedavg_bit_for_bit():
    task = ft.tasks.quadratic(HESSIANS, MINIMA, noise=1.0)
    run = lambda method: ft.train(task, method, rounds=10, local_steps=STEPS, cohort=2, seed=3).params
    fedexp = ft.methods.fedexp(ft.client.sgd(0.01), epsilon=1e6)
    np.testing.assert_array_equal(run(fedexp), run(ft.methods.fedavg(0.01)))


@pytest.mark.parametrize("correction", ["local", "joint"])
def test_with_a_correction_the_sizes_are_of_what_clients_send(correction):
    """SGD: clients send u_i = Δ_i / τ_i; η_g is of the u_i, and multiplies what the server makes of them."""
    task = ft.tasks.quadratic([[4.0], [4.0]], [[1.0], [-1.5]], start=[0.0])
    tau, ends = [1, 2], [0.4, -0.6 + 0.4 * (-1.5 + 0.6)]  # y ← y − 0.1 · 4 (y − m)
    sent = [-end / steps for end, steps in zip(ends, tau)]
    rate = max(1, np.mean(np.square(sent)) / (2 * (np.mean(sent) ** 2 + EPSILON)))
    used = np.mean(sent) / (1 if correction == "local" else np.mean([1 / steps for steps in tau]))
    assert rate > 2
    method = ft.methods.fedexp(ft.client.sgd(0.1), epsilon=EPSILON, correction=correction)
    assert moved_by(method, task, local_steps=tau) == pytest.approx([rate * used], rel=1e-12)


def test_clients_send_one_number_besides_their_update():
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    history = ft.train(task, ft.methods.fedexp(ft.client.sgd(0.01)), rounds=1, local_steps=1, cohort=2).history
    assert (history["bytes_up"][0], history["bytes_down"][0]) == (
        2 * (16 + 8),
        2 * 16,
    )  # 2 clients, 2 weights of 8 bytes


@pytest.mark.parametrize("correction", ["moments", "local(table=true)"])
def test_corrections_that_send_no_updates_are_refused(correction):
    with pytest.raises(ValueError, match=r"fedexp compares the sizes of updates.*use 'none', 'local' or 'joint'"):
        ft.methods.fedexp(ft.client.sgd(0.1), correction=correction)
