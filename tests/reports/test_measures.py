"""Means over the last 100 rounds and over seeds, and which run is best."""

import numpy as np
import pytest
from pytest import approx

from fedtrue.reports.labels import group_runs
from fedtrue.reports.measures import (
    Measure,
    best_group,
    best_value,
    choose_measure,
    final_value,
    group_value,
    last_means,
    mean_last,
    mean_last_title,
    mean_over_seeds,
    measures,
    rank_groups,
)
from fedtrue.runner.records import read_run
from tests.reports.made_runs import ACCURACY, LOSS, TRAIN_LOSS, write_run


def test_the_mean_of_the_last_hundred_rounds_leaves_earlier_rounds_out(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.0] * 50 + [0.2] * 50 + [0.4] * 50))
    assert mean_last(run, ACCURACY).value == approx(0.3)  # rounds 50 … 149: half 0.2, half 0.4


def test_the_mean_is_over_the_evaluations_in_the_last_hundred_rounds(tmp_path):
    values = np.arange(200) / 1000
    run = read_run(write_run(tmp_path / "run", values.tolist(), every=40))
    assert mean_last(run, ACCURACY).value == approx((0.119 + 0.159 + 0.199) / 3)  # after rounds 120, 160, 200


def test_a_round_without_a_finite_value_is_left_out_of_the_mean(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.2, None, 0.4]))
    assert mean_last(run, ACCURACY).value == approx(0.3)


def title_of(*runs, measure=ACCURACY):
    return mean_last_title(measure, last_means(runs, measure))


def test_the_title_of_the_mean_says_over_how_many_evaluations_and_rounds(tmp_path):
    long = read_run(write_run(tmp_path / "long", [0.1] * 200, every=10))
    assert title_of(long) == "test accuracy, mean of the 10 evaluations in the last 100 rounds"
    assert title_of(long, measure=TRAIN_LOSS) == "train loss, mean over the last 100 rounds"
    end = read_run(write_run(tmp_path / "end", [0.1] * 200, every=200))
    assert title_of(end) == "test accuracy, the one evaluation in the last 100 rounds"


def test_the_title_of_a_short_run_counts_all_its_rounds(tmp_path):
    short = read_run(write_run(tmp_path / "short", [0.1] * 40, every=10))
    assert title_of(short) == "test accuracy, mean of the 4 evaluations in all 40 rounds"
    assert title_of(short, measure=TRAIN_LOSS) == "train loss, mean over all 40 rounds"
    long = read_run(write_run(tmp_path / "long", [0.1] * 200, every=10))
    assert (
        title_of(short, long)
        == "test accuracy, mean of the evaluations in the last 100 rounds, or all of a shorter run"
    )


def test_a_diverged_run_does_not_change_the_title(tmp_path):
    long = read_run(write_run(tmp_path / "long", [0.1] * 200, every=10))
    diverged = read_run(write_run(tmp_path / "diverged", [0.1] * 40, status="diverged"))
    assert title_of(long, diverged) == title_of(long)


def test_seeds_with_different_numbers_of_evaluations_have_no_common_count(tmp_path):
    runs = [read_run(write_run(tmp_path / str(n), [0.5] * 200, every=n, seed=n)) for n in (10, 20)]
    (only,) = group_runs(runs)
    assert group_value(only, ACCURACY) == (0.5, 0.0, 2, None, 100)


def test_final_mean_and_best_are_three_numbers(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.9] + [0.1] * 99 + [0.4]))
    assert final_value(run, ACCURACY) == 0.4
    assert mean_last(run, ACCURACY) == (approx((99 * 0.1 + 0.4) / 100), 100, 100)  # round 0 is before the last 100
    assert best_value(run, ACCURACY) == 0.9


def test_a_mean_over_seeds_has_the_sample_standard_deviation():
    assert mean_over_seeds([1.0, 2.0, 3.0]) == (2.0, 1.0, 3)  # ((1 + 0 + 1) / (3 − 1))^½ = 1
    assert mean_over_seeds([1.0, None]) == (1.0, None, 1)
    assert mean_over_seeds([None]) is None


def test_a_diverged_seed_does_not_enter_the_mean(tmp_path):
    finished = write_run(tmp_path / "a", [0.5], seed=0)
    diverged = write_run(tmp_path / "b", [0.1], seed=1, status="diverged")
    (only,) = group_runs([read_run(finished), read_run(diverged)])
    assert group_value(only, ACCURACY) == (0.5, None, 1, 1, 1)  # one seed; one evaluation in one round


def test_the_best_accuracy_is_the_highest_and_the_best_loss_the_lowest(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.3, 0.2], loss=[3.0, 1.0, 2.0]))
    assert (best_value(run, ACCURACY), best_value(run, TRAIN_LOSS)) == (0.3, 1.0)


def test_groups_without_a_value_come_last(tmp_path):
    ends = {"low": 0.1, "none": None, "high": 0.3}
    runs = [
        read_run(write_run(tmp_path / name, [end], client={"name": name, "learning_rate": 1.0}))
        for name, end in ends.items()
    ]
    assert rank_groups(group_runs(runs), ACCURACY) == [2, 0, 1]


def test_settings_with_a_seed_that_diverged_are_best_only_if_no_others_have_a_value(tmp_path):
    adam = {"name": "adam", "learning_rate": 1.0}
    runs = [write_run(tmp_path / "sgd", [0.1]), write_run(tmp_path / "adam-0", [0.9], client=adam)]
    runs += [write_run(tmp_path / "adam-1", [0.9], client=adam, seed=1, status="diverged")]
    groups = group_runs([read_run(run) for run in runs])
    assert rank_groups(groups, ACCURACY) == [0, 1]
    assert best_group(groups[1:], ACCURACY) == 0
    assert best_group(group_runs([read_run(runs[2])]), ACCURACY) is None


def test_the_first_measure_is_test_accuracy_and_measures_that_are_always_zero_are_left_out(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.2]))
    keys = [measure.key for measure in measures([run])]
    assert keys == ["test.accuracy", "test.loss", "train.loss", "pseudo_gradient_norm"]  # none dropped
    assert choose_measure([run]) == ACCURACY
    assert measures([run])[1:3] == [LOSS, TRAIN_LOSS]


AUC = {"auc": {"higher_is_better": True, "percent": False}}


@pytest.mark.parametrize("status", ["finished", "running"])
def test_the_run_folder_says_which_direction_is_better(status, tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.3, 0.2], metric="auc", kinds=AUC, status=status))
    assert choose_measure([run]) == Measure("test.auc", higher_is_better=True, percent=False)
    assert best_value(run, choose_measure([run])) == 0.3


def test_in_old_records_unknown_metrics_count_as_losses(tmp_path):
    old = read_run(write_run(tmp_path / "old", [0.1, 0.3, 0.2], metric="auc"))
    assert choose_measure([old], "test.auc") == Measure("test.auc", higher_is_better=False, percent=False)
    new = read_run(write_run(tmp_path / "new", [0.1], metric="auc", kinds=AUC))
    assert choose_measure([old, new], "test.auc").higher_is_better  # one declaration is enough


def test_runs_that_contradict_each_other_are_refused(tmp_path):
    other = {"auc": {"higher_is_better": False, "percent": False}}
    runs = [read_run(write_run(tmp_path / name, [0.1], metric="auc", kinds=kinds)) for name, kinds in
            (("a", AUC), ("b", other))]  # fmt: skip
    with pytest.raises(ValueError, match="declare metric 'auc' differently: report them separately"):
        choose_measure(runs)


def test_an_unknown_measure_is_refused_with_the_nearest(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1]))
    with pytest.raises(ValueError, match=r"did you mean 'test\.accuracy'"):
        choose_measure([run], "test.acuracy")


def test_runs_without_a_recorded_round_are_refused_with_a_clear_message(tmp_path):
    run = read_run(write_run(tmp_path / "run", [], status="running"))
    with pytest.raises(ValueError, match="no round has been recorded yet"):
        choose_measure([run])
