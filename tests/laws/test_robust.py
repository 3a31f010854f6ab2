"""Robust aggregation: a minority of hostile clients does not move the fixed point beyond the honest ones' own range."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.attack import hostile_share
from fedtrue.algorithm.interface import Contribution
from fedtrue.algorithm.robust import squared_distances

CLIENTS = 10
MINIMA = np.linspace(0.0, 0.9, CLIENTS)[:, None] * [1.0, -1.0]
HOSTILE = hostile_share("scaled", 0.2, 0)(CLIENTS)
ROBUST = ["median", "trimmed_mean(share=0.2)", "krum(hostile=2)", "krum(hostile=2, kept=6)"]
ATTACKS = ["scaled(factor=-1)", "random(deviation=1000)"]


def final(aggregator=None, attack=None, correction="none", client="sgd", **options):
    task = ft.tasks.quadratic(hessians=np.ones((CLIENTS, 2)), minima=MINIMA, start=[0.3, -0.3])
    method = ft.fedopt(
        getattr(ft.client, client)(0.1), ft.server.sgd(1.0), correction, aggregator=aggregator, attack=attack, **options
    )
    return ft.train(task, method, rounds=120, local_steps=2).params


@pytest.mark.parametrize(
    "aggregator, attack",
    [*((each, "scaled(factor=-1000)") for each in ROBUST), *(("median", each) for each in ATTACKS)],
)
def test_a_hostile_minority_leaves_the_fixed_point_within_the_honest_minima(aggregator, attack):
    """Equal curvature: a robust update of 0 needs honest updates of both signs, so x lies between honest minima."""
    honest = MINIMA[~HOSTILE]
    x = final(aggregator, attack)
    slack = 1e-6
    assert (honest.min(axis=0) - slack <= x).all() and (x <= honest.max(axis=0) + slack).all()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_mean_is_moved_by_the_same_attacks(attack):
    mean, attacked = final("mean"), final("mean", attack)
    if attack == ATTACKS[0]:  # Σ_honest (m_i − x) = Σ_hostile (m_i − x)
        expected = (MINIMA[~HOSTILE].sum(axis=0) - MINIMA[HOSTILE].sum(axis=0)) / (8 - 2)
        np.testing.assert_allclose(attacked, expected, atol=1e-6)
        assert np.linalg.norm(attacked - mean) > 0.05
    else:
        assert not (np.abs(attacked) < 10).all()  # far away, or not finite


def test_an_update_that_is_not_finite_is_dropped_whatever_the_aggregator():
    for aggregator in (None, "median"):
        expected = {"median": np.median, None: np.mean}[aggregator](MINIMA[~HOSTILE], axis=0)
        np.testing.assert_allclose(final(aggregator, "scaled(factor=inf)"), expected, atol=1e-6)


def test_with_joint_the_median_of_denominators_keeps_the_fixed_point_in_range():
    x = final("median", "scaled(factor=-1000)", correction="joint", client="adagrad")
    assert (MINIMA.min(axis=0) - 1e-6 <= x).all() and (x <= MINIMA.max(axis=0) + 1e-6).all()


def rows(*values):
    return {"update": Contribution(jnp.asarray(values)[:, None])}


def estimate(aggregator, values, sent=None):
    sent = jnp.ones(len(values), bool) if sent is None else jnp.asarray(sent)
    return ft.from_spec(aggregator, "aggregator").combine(rows(*values), sent)["update"].value.item()


def test_estimates_look_at_those_who_sent_only():
    values, sent = [5.0, 1.0, 99.0, 2.0, 7.0], [True, True, False, True, True]
    assert estimate("median", values, sent) == 3.5  # of 1, 2, 5, 7
    assert estimate("trimmed_mean(share=0.25)", values, sent) == 3.5  # (2 + 5) / 2
    assert estimate("median", values, [False] * 5) == 0.0
    near = [0.0, 1.0, 1.01, 9.0, 1.5]  # the two nearest of 1: 0.5² + 1² = 1.25, of 1.5: 0.5² + 1.5² = 2.5
    assert estimate("krum(hostile=0)", near, sent) == 1.0


def test_krum_is_the_update_nearest_to_its_neighbours():
    """n = 5, f = 1: the two nearest others. Scores 5, 2, 2, 5 of 0, 1, 2, 3 and more of 50; the first of equal ones."""
    assert estimate("krum(hostile=1)", [0.0, 1.0, 2.0, 3.0, 50.0]) == 1.0
    assert estimate("krum(hostile=1, kept=4)", [0.0, 1.0, 2.0, 3.0, 50.0]) == 1.5  # (0 + 1 + 2 + 3) / 4


@pytest.mark.parametrize("place", range(5))
def test_krum_takes_the_only_one_that_sent_wherever_it_is(place):
    rows = {"update": Contribution(jnp.arange(5.0))}
    chosen = ft.aggregator.krum(hostile=1).combine(rows, jnp.arange(5) == place)
    assert chosen["update"].value == place


@pytest.mark.parametrize(("share", "count"), [(0.3, 50), (0.3, 100), (0.07, 100)])
def test_a_share_that_is_a_whole_number_of_clients_cuts_that_many(share, count):
    """The mean of the squares 0, 1, 4 … without the outermost share · count at each end."""
    squares, cut = jnp.arange(float(count)) ** 2, round(share * count)
    rows = {"update": Contribution(squares)}
    trimmed = ft.aggregator.trimmed_mean(share).combine(rows, jnp.ones(count, bool))["update"].value
    assert trimmed == pytest.approx(np.mean(np.arange(count)[cut : count - cut] ** 2))


def test_without_hostile_clients_the_median_of_three_clients_is_the_middle_one():
    task = ft.tasks.quadratic(hessians=np.ones((3, 1)), minima=[[0.0], [1.0], [5.0]])
    method = ft.fedopt(ft.client.sgd(0.2), correction="none", aggregator="median", weighting="uniform")
    assert ft.train(task, method, rounds=100, local_steps=1).params.item() == pytest.approx(1.0)


def test_every_phase_is_robust():
    """Mime's cohort gradient is a contribution of the first phase."""
    task = ft.tasks.quadratic(hessians=np.ones((CLIENTS, 2)), minima=MINIMA)
    method = ft.methods.mime(ft.client.sgd(0.1), aggregator="median", attack="scaled(factor=-1000)")
    x = ft.train(task, method, rounds=100, local_steps=2).params
    assert (MINIMA.min(axis=0) - 1e-6 <= x).all() and (x <= MINIMA.max(axis=0) + 1e-6).all()


def test_what_would_not_hold_is_refused(monkeypatch):
    sgd = ft.client.sgd(0.1)
    with pytest.raises(ValueError, match="use sampling 'uniform'"):
        ft.fedopt(sgd, correction="none", aggregator="median", sampling="optimal")
    with pytest.raises(ValueError, match="fixed_denominator=false"):
        ft.fedopt(sgd, aggregator="median", sampling="poisson")
    with pytest.raises(ValueError, match="a cohort needs at least 5, not 2: use a larger cohort"):
        ft.train(ft.tasks.quadratic(), ft.fedopt(sgd, aggregator="krum"), rounds=1)
    with pytest.raises(ValueError, match="leave one of them out"):
        ft.fedopt(sgd, aggregator="median", privacy="gaussian(clip=1, noise=1)")
    monkeypatch.setattr("fedtrue.engine.planning.free_bytes", lambda device: 63)  # 2 clients × (update, 1/N) × 2 × 8
    with pytest.raises(ValueError, match=r"one by one: .* use a smaller cohort"):
        ft.train(ft.tasks.quadratic(), ft.fedopt(ft.client.adagrad(0.1), aggregator="median"), rounds=1)


def test_distances_do_not_cancel_beside_a_large_update():
    points = jnp.asarray([[1e6], [1e6 + 0.5], [3.0]], jnp.float32)
    assert squared_distances({"update": points})[0, 1] == 0.25
