"""Curves: where their points stand, means over seeds, thinning."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.report.series import ALL_POINTS, FEWEST, POINTS, Curve, curve, mean_curve, points_each, thinned
from fedtrue.runner.records import read_run
from tests.report.made_runs import ACCURACY, write_run


def made(values, rounds=None):
    rounds = np.arange(1, len(values) + 1) if rounds is None else np.asarray(rounds)
    return Curve(rounds, 10.0 * rounds, 0.5 * rounds, np.asarray(values, float))


def test_a_point_stands_after_its_round_and_all_bytes_and_seconds_so_far(tmp_path):
    found = curve(read_run(write_run(tmp_path / "run", [0.1, 0.2, 0.3, 0.4], every=2)), ACCURACY)
    assert found.rounds.tolist() == [2, 4]
    assert found.bytes.tolist() == [6_000_000, 12_000_000]  # 2 MB up and 1 MB down a round
    assert found.seconds.tolist() == [1.0, 2.0]
    assert found.value.tolist() == [0.2, 0.4]


def test_a_mean_over_seeds_covers_the_rounds_that_all_have():
    found = mean_curve([made([1.0, 2.0, 3.0]), made([3.0, 6.0])])
    assert found.rounds.tolist() == [1, 2]
    assert found.value.tolist() == [2.0, 4.0]
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 2.0], [3.0, 6.0])


def test_seeds_without_a_common_round_have_no_mean():
    assert mean_curve([made([1.0], [1]), made([1.0], [2])]) is None


@given(st.integers(1, 5000), st.integers(2, 1200))
def test_thinning_keeps_both_ends_the_order_and_the_limit(length, limit):
    found = thinned(made(np.arange(length)), limit)
    assert len(found) <= max(limit, 1) and len(found) == min(length, limit)
    assert (found.rounds[0], found.rounds[-1]) == (1, length)
    assert np.all(np.diff(found.rounds) > 0)
    assert np.array_equal(found.value, found.rounds - 1)  # every point is one of the curve's own


def test_more_curves_get_fewer_points_each():
    assert points_each(1) == POINTS
    assert points_each(500) == ALL_POINTS // 500
    assert points_each(10**6) == FEWEST
