"""When runs reach a target, and at what cost; a generated round costs 3 MB and half a second."""

import pytest
from pytest import approx

from fedtrue.reports.labels import group_runs
from fedtrue.reports.table_formats import to_csv, to_markdown, to_records
from fedtrue.reports.tables import build_table
from fedtrue.reports.targets import COSTS, cost_to, rounds_to
from fedtrue.runner.records import read_run
from tests.reports.made_runs import ACCURACY, LOSS, TRAIN_LOSS, write_run


def seeds(folder, *curves, **settings):
    """One group with one seed per curve."""
    runs = [write_run(folder / str(seed), values, seed=seed, **settings) for seed, values in enumerate(curves)]
    (only,) = group_runs([read_run(run) for run in runs])
    return only


def costs(group, target, measure=ACCURACY):
    return [cost_to(group, measure, target, name) for name in COSTS]


def test_the_first_round_that_reaches_the_target_counts_even_if_the_next_falls_back(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.3, 0.2, 0.4]))
    assert rounds_to(run, ACCURACY, 0.25) == 2
    assert rounds_to(run, ACCURACY, 0.3) == 2  # at least as good
    assert rounds_to(run, ACCURACY, 0.5) is None


def test_a_loss_reaches_the_target_from_above(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1] * 4, loss=[3.0, 2.0, 1.0, 2.0]))
    assert [rounds_to(run, measure, 1.5) for measure in (LOSS, TRAIN_LOSS)] == [3, 3]
    assert rounds_to(run, LOSS, 3.0) == 1


def test_only_evaluated_rounds_can_reach_the_target(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.5] * 10, every=4))
    assert rounds_to(run, ACCURACY, 0.5) == 4


def test_a_round_without_a_finite_value_does_not_reach_the_target(tmp_path):
    run = read_run(write_run(tmp_path / "run", [None, 0.5]))
    assert rounds_to(run, ACCURACY, 0.0) == 2


def test_costs_are_sums_up_to_the_target_and_means_over_seeds(tmp_path):
    rounds, traffic, seconds = costs(seeds(tmp_path, [0.1, 0.5, 0.6], [0.1, 0.2, 0.2, 0.5]), 0.5)
    assert rounds == (3.0, approx(2**0.5), 2)  # after 2 and 4 rounds
    assert traffic == (9e6, approx(3e6 * 2**0.5), 2)  # 3 MB per round
    assert seconds == (1.5, approx(0.5 * 2**0.5), 2)  # 0.5 s per round


def test_a_target_reached_in_the_last_round_costs_the_whole_run(tmp_path):
    whole = build_table([seeds(tmp_path, [0.1, 0.2, 0.5])], target=0.5, columns=["bytes", "seconds", *COSTS])
    (row,) = to_records(whole)
    assert (row["bytes_to"], row["seconds_to"]) == (row["bytes"], row["seconds"])


def test_there_is_no_mean_unless_every_seed_reached_the_target(tmp_path):
    missed = costs(seeds(tmp_path, [0.5], [0.4], [0.6]), 0.5)
    assert missed == [(None, None, 3, 2)] * 3


def test_a_diverged_seed_did_not_reach_the_target(tmp_path):
    assert costs(seeds(tmp_path, [0.5, 0.1], status="diverged"), 0.5) == [(None, None, 1, 0)] * 3


@pytest.fixture
def three(tmp_path):
    """Groups of two seeds: both reach 50 %, one does, none does."""
    curves = {"both": ([0.5], [0.1, 0.5]), "one": ([0.5], [0.1]), "none": ([0.1], [0.1])}
    return [
        seeds(tmp_path / name, *values, label=name, client={"name": name, "learning_rate": 0.1})
        for name, values in curves.items()
    ]


def test_a_cell_tells_how_many_seeds_reached_the_target(three):
    assert to_markdown(build_table(three, target=0.5, columns=["run", *COSTS])) == (
        "| run | rounds to test accuracy 50 % | traffic to test accuracy 50 % | time to test accuracy 50 % |\n"
        "|---|--:|--:|--:|\n"
        "| both | 2 ± 1 | 4.5 MB ± 2.12 MB | 0.75 s ± 0.354 s |\n"  # 1 and 2 rounds
        "| one | 1 of 2 reached | 1 of 2 reached | 1 of 2 reached |\n"
        "| none | not reached | not reached | not reached |\n"
    )


def test_a_missed_target_is_null_with_a_count_in_json_and_empty_in_csv(three):
    table = build_table(three, target=0.5, columns=["rounds_to"])
    assert [row["rounds_to"]["value"] for row in to_records(table)] == [1.5, None, None]
    assert [row["rounds_to"].get("reached") for row in to_records(table)] == [None, 1, 0]
    assert to_csv(table).splitlines()[2:] == [",", ","]


def test_sorting_by_a_cost_puts_the_cheapest_first_and_the_unreached_last(three):
    by_rounds = build_table(three[::-1], target=0.5, sort="rounds_to")
    assert [group.name for group in by_rounds.groups] == ["both", "none", "one"]


def test_equal_seeds_have_deviation_zero(tmp_path):
    table = build_table([seeds(tmp_path, [0.5], [0.5])], target=0.5, columns=[*COSTS])
    assert table.texts() == [["1 ± 0", "3 MB ± 0 B", "0.5 s ± 0 s"]]


def test_losses_are_named_without_percent(tmp_path):
    (column,) = build_table([seeds(tmp_path, [0.5])], "test.loss", target=1.5, columns=["rounds_to"]).columns
    assert column.title == "rounds to test loss 1.5"
