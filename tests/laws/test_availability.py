"""Stragglers and dropouts: what they do to the steps, the replies and the expected update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.methods import METHODS
from fedtrue.data.batches import round_key
from fedtrue.engine.round import REPLIES
from fedtrue.spec import option_table
from tests.cases import quick, samples_clients

CLIENTS = 6
RNG = np.random.default_rng(3)


def quadratic():
    return ft.tasks.quadratic(1.0 + RNG.random((CLIENTS, 2)), RNG.normal(size=(CLIENTS, 2)))


TASK = quadratic()
SGD = ft.fedopt(ft.client.sgd(0.1), correction="none")
FEW = {"rounds": 8, "local_steps": 4, "lanes": 1}


def test_a_deadline_with_equal_speeds_is_a_constant_number_of_local_steps_bit_for_bit():
    late = ft.train(TASK, SGD, rounds=8, local_steps=7, lanes=1, availability=ft.Availability(deadline=4.9))
    constant = ft.train(TASK, SGD, **FEW)  # ⌊4.9 · 1⌋ = 4
    np.testing.assert_array_equal(late.params, constant.params)
    assert late.history["missing"].tolist() == [0] * 8


def test_slow_clients_finish_fewer_steps_and_those_without_one_are_missing():
    availability = ft.Availability(deadline=2.0, speed_spread=1.0)
    finished = np.floor(2.0 * availability.speeds(CLIENTS, seed=0)).astype(int)
    expected = np.minimum(finished, 4)
    assert len(set(expected)) > 2 and 0 in expected  # the seed gives unequal steps and one client without any
    result = ft.train(TASK, SGD, **FEW, availability=availability)
    assert set(result.history["steps"]) == {expected.sum()}
    assert set(result.history["missing"]) == {(expected == 0).sum()}
    unequal = ft.train(
        TASK, ft.fedopt(ft.client.sgd(0.1), correction="none"), rounds=8, local_steps=np.maximum(expected, 1).tolist()
    )
    assert not np.array_equal(unequal.params, result.params)  # the missing client has no say


def test_late_clients_are_dropped_if_asked():
    availability = ft.Availability(deadline=2.0, speed_spread=1.0, late="drop")
    steps = availability.steps(np.full(CLIENTS, 2), seed=0)
    assert set(steps) == {0, 2}
    assert (steps == 2).tolist() == (availability.speeds(CLIENTS, 0) >= 1).tolist()


def test_a_clients_speed_does_not_depend_on_the_number_of_clients():
    availability = ft.Availability(deadline=2.0, speed_spread=1.0)
    np.testing.assert_array_equal(availability.speeds(3, seed=5), availability.speeds(9, seed=5)[:3])
    assert np.median(availability.speeds(100_001, seed=0)) == pytest.approx(1.0, abs=0.01)


def replies_of(rounds, dropout, clients):
    replies = jax.jit(ft.Availability(dropout=dropout).replies)
    keys = [jax.random.fold_in(round_key(0, r), REPLIES) for r in range(rounds)]
    return np.stack([np.asarray(replies(key, jnp.arange(clients))) for key in keys])


def test_the_number_of_replies_is_binomial():
    rounds, clients, dropout = 2000, 10, 0.3
    counts = replies_of(rounds, dropout, clients).sum(axis=1)
    # mean n(1−p) = 7, variance n p (1−p) = 2.1; five standard errors: 5 √(2.1/2000) = 0.16, 5 · 2.1 √(2/2000) = 0.33
    assert counts.mean() == pytest.approx(7, abs=0.16)
    assert counts.var() == pytest.approx(2.1, abs=0.33)


def test_replies_of_clients_and_of_rounds_are_independent():
    replies = replies_of(2000, 0.5, 4) - 0.5
    between_clients = np.corrcoef(replies.T)[np.triu_indices(4, 1)]
    between_rounds = [np.corrcoef(replies[1:, i], replies[:-1, i])[0, 1] for i in range(4)]
    assert np.abs([*between_clients, *between_rounds]).max() < 5 / np.sqrt(2000)  # five standard errors


SLOPES = np.array([-3.0, 0.0, 1.0, 6.0])


def linear_task(**settings):
    """F_i(x) = s_i x: a client's pseudo-gradient is η s_i wherever the server is."""
    return ft.tasks.from_arrays(
        [{"slope": np.array([slope])} for slope in SLOPES],
        init=lambda key: jnp.zeros(()),
        loss=lambda params, example: example["slope"] * params,
        **settings,
    )


def test_with_uniform_weights_the_expected_update_does_not_change_with_dropouts():
    rounds = 10_000
    availability = ft.Availability(dropout=0.4)
    result = ft.train(linear_task(float64=True), SGD, rounds=rounds, lanes=1, availability=availability)
    with_reply = (result.history["clients"] > 0).sum()
    mean = -float(result.params) / (0.1 * with_reply)
    # without dropouts it is the mean of the slopes, 1. The variance of the mean of k of 4 slopes is 10.5/k · (4−k)/3;
    # with P(k) of a binomial with p = 0.6, given k ≥ 1: 3.31. Five standard errors: 5 √(3.31/9744) = 0.092
    assert mean == pytest.approx(1.0, abs=0.092)
    np.testing.assert_array_equal(result.history["clients"] + result.history["missing"], 4)


@pytest.mark.filterwarnings("error")
def test_rounds_without_a_reply_change_nothing_and_are_not_a_divergence():
    result = ft.train(linear_task(), SGD, rounds=60, lanes=1, availability=ft.Availability(dropout=0.97))
    silent = result.history["clients"] == 0
    assert silent.sum() > 45 and result.summary["status"] == "finished"  # 0.97⁴ = 0.885 of 60
    assert (result.history["bytes_up"][silent] == 0).all()
    assert (result.history["bytes_down"] == result.history["bytes_down"][0]).all()  # everybody was sent the weights
    assert result.summary["totals"]["dropped"] == 0


@pytest.mark.parametrize("name", quick(METHODS, "scaffold"))
def test_every_method_trains_with_missing_clients(name):
    trains_with_missing_clients(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedopt", "mime"])
def test_so_does_one_whose_clients_are_drawn_by_size(name):
    trains_with_missing_clients(name, sampling="by_size")


def trains_with_missing_clients(name, **options):
    takes = option_table(METHODS[name])
    rate = {"client_rate": 0.05} if "client_rate" in takes else {"client": ft.client.sgd(0.05)}
    method = METHODS[name](**rate, **options)
    availability = ft.Availability(dropout=0.3, deadline=3.0, speed_spread=0.8)
    cohort = 4 if samples_clients(name) else CLIENTS
    result = ft.train(TASK, method, rounds=10, cohort=cohort, local_steps=4, lanes=2, availability=availability)
    assert result.history["missing"].sum() > 0
    assert np.isfinite(result.params).all()
    assert not np.array_equal(result.params, TASK.start)


def test_lanes_do_not_change_who_replies():
    availability = ft.Availability(dropout=0.3, deadline=3.0, speed_spread=0.8)
    results = [ft.train(TASK, SGD, rounds=6, local_steps=4, lanes=n, availability=availability) for n in (1, 2, 6)]
    for other in results[1:]:
        np.testing.assert_array_equal(other.history["missing"], results[0].history["missing"])
        np.testing.assert_allclose(other.params, results[0].params, rtol=1e-12)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dropout": 1.0}, "dropout must be a finite number at least 0 and below 1, not 1.0"),
        ({"dropout": -0.1}, "dropout must be"),
        ({"deadline": 0}, "deadline must be a finite number above 0, not 0"),
        ({"speed_spread": 0.5}, "speed_spread and late have no effect without a deadline"),
        ({"deadline": 3, "late": "dorp"}, r"did you mean 'drop'"),
    ],
)
def test_wrong_options_are_refused_with_the_cure(options, message):
    with pytest.raises(ValueError, match=message):
        ft.Availability(**options)


def test_a_deadline_that_nobody_meets_is_refused():
    with pytest.raises(ValueError, match=r"no client replies before the deadline of 0\.5 steps: give a longer one"):
        ft.train(TASK, SGD, rounds=1, availability=ft.Availability(deadline=0.5))
