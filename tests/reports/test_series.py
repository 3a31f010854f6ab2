"""Curves: positions of their points, means over seeds, thinning."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.reports.series import (
    MAX_POINTS_PER_CURVE,
    MAX_POINTS_PER_PAGE,
    MIN_POINTS_PER_CURVE,
    Curve,
    mean_curve,
    points_per_curve,
    run_curve,
    thin_curve,
)
from fedtrue.runner.records import read_run
from tests.reports.made_runs import ACCURACY, write_run


def curve_of(values, rounds=None):
    rounds = np.arange(1, len(values) + 1) if rounds is None else np.asarray(rounds)
    return Curve(rounds, 10.0 * rounds, 0.5 * rounds, np.asarray(values, float))


def test_a_point_is_placed_after_its_round_and_all_bytes_and_seconds_so_far(tmp_path):
    curve = run_curve(read_run(write_run(tmp_path / "run", [0.1, 0.2, 0.3, 0.4], every=2)), ACCURACY)
    assert curve.rounds.tolist() == [2, 4]
    assert curve.bytes.tolist() == [6_000_000, 12_000_000]  # 2 MB up and 1 MB down per round
    assert curve.seconds.tolist() == [1.0, 2.0]
    assert curve.value.tolist() == [0.2, 0.4]


def test_a_mean_over_seeds_covers_the_rounds_that_all_have():
    curve = mean_curve([curve_of([1.0, 2.0, 3.0]), curve_of([3.0, 6.0])])
    assert curve.rounds.tolist() == [1, 2]
    assert curve.value.tolist() == [2.0, 4.0]
    assert (curve.low.tolist(), curve.high.tolist()) == ([1.0, 2.0], [3.0, 6.0])


def test_seeds_without_a_common_round_have_no_mean():
    assert mean_curve([curve_of([1.0], [1]), curve_of([1.0], [2])]) is None


@given(st.integers(1, 5000), st.integers(2, 1200))
def test_thinning_keeps_both_ends_the_order_and_the_limit(length, limit):
    curve = thin_curve(curve_of(np.arange(length)), limit)
    assert len(curve) <= max(limit, 1) and len(curve) == min(length, limit)
    assert (curve.rounds[0], curve.rounds[-1]) == (1, length)
    assert np.all(np.diff(curve.rounds) > 0)
    assert np.array_equal(curve.value, curve.rounds - 1)  # every point is one of the points of the curve


def test_more_curves_get_fewer_points_per_curve():
    assert points_per_curve(1) == MAX_POINTS_PER_CURVE
    assert points_per_curve(500) == MAX_POINTS_PER_PAGE // 500
    assert points_per_curve(10**6) == MIN_POINTS_PER_CURVE
