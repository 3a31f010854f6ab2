"""One round with clipping, a schedule within it and weight decay, computed by hand."""

import numpy as np
from pytest import approx

import fedtrue as ft

TASK = ft.tasks.quadratic([[1.0]], [[2.0]], start=[10.0])  # gradient x − 2


def one_round(correction, **options):
    client = ft.client.sgd(0.5, **options)
    return float(ft.train(TASK, ft.fedopt(client, correction=correction), rounds=1, local_steps=2).params[0])


def test_a_schedule_within_the_round():
    """s = 1, 0.2:  x = 10 − 0.5 · 8 = 6, then 6 − 0.5 · 0.2 · 4 = 5.6;  N = 1 + 0.2."""
    schedule = ft.schedules.piecewise([1.0, 0.2], boundaries=[1])
    assert one_round("none", within_round=schedule) == approx(5.6)
    assert one_round("local", within_round=schedule) == approx(10 - 4.4 / 1.2)  # Δ = 10 − 5.6


def test_clipping():
    """C = 5:  c = 5/8, x = 10 − 0.5 · 5 = 7.5;  c = 5/5.5, x = 7.5 − 0.5 · 5 = 5;  N = 5/8 + 10/11."""
    assert one_round("none", clip_norm=5.0) == approx(5.0)
    assert one_round("local", clip_norm=5.0) == approx(10 - 5 / (5 / 8 + 10 / 11))


def test_weight_decay():
    """λ = 0.4, a = 1 − 0.5 · 0.4 = 0.8:  x = 0.8 · 10 − 0.5 · 8 = 4, then 0.8 · 4 − 0.5 · 2 = 2.2.

    S = 0.8 · 1 + 1 = 1.8 = N, and Δ without the decay is 10 − 2.2 − 0.5 · 0.4 · 1.8 · 10 = 4.2.
    """
    assert one_round("none", weight_decay=0.4) == approx(2.2)
    assert one_round("local", weight_decay=0.4) == approx(10 - 4.2 / 1.8 - 0.5 * 0.4 * 10)
    assert one_round("joint", weight_decay=0.4) == approx(2.2)  # one client: nothing to correct


def test_all_of_them_with_momentum():
    """β = 0.5, s = 1, 0.2, C = 5, λ = 0.4: a = 0.8, then 1 − 0.5 · 0.2 · 0.4 = 0.96.

    g = 8, c = 5/8: m = 2.5, x = 0.8 · 10 − 0.5 · 2.5 = 6.75.  g = 4.75, c = 1: m = 1.25 + 2.375 = 3.625,
    x = 0.96 · 6.75 − 0.1 · 3.625 = 6.1175.  Ones: 5/16, then 5/32 + 1/2 = 21/32:  N = 0.96 · 5/16 + 0.2 · 21/32.
    S = 0.96 · 1 + 0.2 = 1.16, and Δ without the decay is 10 − 6.1175 − 0.2 · 1.16 · 10 = 1.5625.
    """
    options = {"within_round": ft.schedules.piecewise([1.0, 0.2], [1]), "clip_norm": 5.0, "weight_decay": 0.4}
    client = ft.client.momentum(0.5, beta=0.5, **options)
    run = lambda correction: ft.train(TASK, ft.fedopt(client, correction=correction), rounds=1, local_steps=2).params
    assert run("none") == approx([6.1175])
    assert run("local") == approx([10 - 1.5625 / (0.96 * 5 / 16 + 0.2 * 21 / 32) - 0.2 * 10])


def test_schedules():
    values = lambda schedule, *counts: [float(schedule(count)) for count in counts]
    assert values(ft.schedules.linear(1.0, 0.2, length=4), 0, 1, 4, 9) == approx([1.0, 0.8, 0.2, 0.2])
    assert values(ft.schedules.cosine(1.0, length=3, final=0.5), 0, 1, 2, 3, 9) == approx(
        [1.0, 0.875, 0.625, 0.5, 0.5]  # ½ + ½ (1 + cos 60°)/2 = ½ + ⅜, then cos 120°
    )
    assert values(ft.schedules.exponential(8.0, factor=0.25, every=2), 0, 1, 2) == approx([8.0, 4.0, 2.0])
    assert values(ft.schedules.inverse(6.0, every=2), 0, 2, 4) == approx([6.0, 3.0, 2.0])
    assert values(ft.schedules.inverse(6.0, power=0.5), 0, 3) == approx([6.0, 3.0])  # 6/√4
    assert values(ft.schedules.piecewise([3.0, 2.0, 1.0], [5, 7]), 4, 5, 6, 7) == [3.0, 2.0, 2.0, 1.0]
    warm = ft.schedules.warmup(ft.schedules.linear(1.0, 0.0, length=10), length=4)
    assert values(warm, 0, 1, 3, 5) == approx([0.25, 0.9 * 0.5, 0.7, 0.5])


def test_within_a_round_a_schedule_without_a_length_takes_that_of_the_clients_steps():
    """Two steps: s = 1 and 0.5 (k/τ = 0, 1/2);  x = 10 − 4 = 6, then 6 − 0.25 · 4 = 5."""
    assert one_round("none", within_round=ft.schedules.linear(1.0, 0.0)) == approx(5.0)
    np.testing.assert_allclose(one_round("local", within_round=ft.schedules.linear(1.0, 0.0)), 10 - 5 / 1.5)
