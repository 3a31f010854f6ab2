"""Means over the last 100 rounds, over seeds, and what is best."""

import numpy as np
import pytest
from pytest import approx

from fedtrue.report.labels import group
from fedtrue.report.measures import Measure, best, best_first, chosen_measure, group_value, last_rounds, mean, measures
from fedtrue.runner.records import read_run
from tests.report.made_runs import ACCURACY, LOSS, TRAIN_LOSS, write_run


def test_the_mean_of_the_last_hundred_rounds_leaves_earlier_rounds_out(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.0] * 50 + [0.2] * 50 + [0.4] * 50))
    assert last_rounds(run, ACCURACY) == approx(0.3)  # rounds 50 … 149: half 0.2, half 0.4


def test_it_averages_the_evaluations_there_are_within_them(tmp_path):
    values = np.arange(200) / 1000
    run = read_run(write_run(tmp_path / "run", values.tolist(), every=40))
    assert last_rounds(run, ACCURACY) == approx((0.119 + 0.159 + 0.199) / 3)  # after rounds 120, 160, 200


def test_a_round_without_a_number_does_not_spoil_the_mean(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.2, None, 0.4]))
    assert last_rounds(run, ACCURACY) == approx(0.3)


def test_a_mean_over_seeds_has_the_samples_deviation():
    assert mean([1.0, 2.0, 3.0]) == (2.0, 1.0, 3)  # ((1 + 0 + 1) / (3 − 1))^½ = 1
    assert mean([1.0, None]) == (1.0, None, 1)
    assert mean([None]) is None


def test_a_diverged_seed_does_not_enter_the_mean(tmp_path):
    finished = write_run(tmp_path / "a", [0.5], seed=0)
    diverged = write_run(tmp_path / "b", [0.1], seed=1, status="diverged")
    (only,) = group([read_run(finished), read_run(diverged)])
    assert group_value(only, ACCURACY) == (0.5, None, 1)


def test_the_best_accuracy_is_the_highest_and_the_best_loss_the_lowest(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.3, 0.2], loss=[3.0, 1.0, 2.0]))
    assert (best(run, ACCURACY), best(run, TRAIN_LOSS)) == (0.3, 1.0)


def test_groups_without_a_value_come_last(tmp_path):
    ends = {"low": 0.1, "none": None, "high": 0.3}
    runs = [
        read_run(write_run(tmp_path / name, [end], client={"name": name, "learning_rate": 1.0}))
        for name, end in ends.items()
    ]
    assert best_first(group(runs), ACCURACY) == [2, 0, 1]


def test_the_first_measure_is_the_tests_share_and_curves_of_nothing_are_left_out(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.2]))
    keys = [measure.key for measure in measures([run])]
    assert keys == ["test.accuracy", "test.loss", "train.loss", "pseudo_gradient_norm"]  # none dropped
    assert chosen_measure([run]) == ACCURACY
    assert measures([run])[1:3] == [LOSS, TRAIN_LOSS]


AUC = {"auc": {"higher_is_better": True, "percent": False}}


@pytest.mark.parametrize("status", ["finished", "running"])
def test_the_run_folder_says_which_direction_is_better(status, tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.3, 0.2], metric="auc", kinds=AUC, status=status))
    assert chosen_measure([run]) == Measure("test.auc", higher_is_better=True, percent=False)
    assert best(run, chosen_measure([run])) == 0.3


def test_old_records_do_not_say_it_and_unknown_names_count_as_losses(tmp_path):
    old = read_run(write_run(tmp_path / "old", [0.1, 0.3, 0.2], metric="auc"))
    assert chosen_measure([old], "test.auc") == Measure("test.auc", higher_is_better=False, percent=False)
    new = read_run(write_run(tmp_path / "new", [0.1], metric="auc", kinds=AUC))
    assert chosen_measure([old, new], "test.auc").higher_is_better  # one that says it is heard


def test_runs_that_contradict_each_other_are_refused(tmp_path):
    other = {"auc": {"higher_is_better": False, "percent": False}}
    runs = [read_run(write_run(tmp_path / name, [0.1], metric="auc", kinds=kinds)) for name, kinds in
            (("a", AUC), ("b", other))]  # fmt: skip
    with pytest.raises(ValueError, match="declare metric 'auc' differently: report them separately"):
        chosen_measure(runs)


def test_a_measure_nobody_has_is_refused_with_the_nearest(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1]))
    with pytest.raises(ValueError, match=r"did you mean 'test\.accuracy'"):
        chosen_measure([run], "test.acuracy")


def test_runs_without_a_round_are_refused_in_words(tmp_path):
    run = read_run(write_run(tmp_path / "run", [], status="running"))
    with pytest.raises(ValueError, match="no round has been recorded yet"):
        chosen_measure([run])
