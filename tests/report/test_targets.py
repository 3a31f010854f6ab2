"""When runs reach a target, and what that cost them; a made round costs 3 MB and half a second."""

import pytest
from pytest import approx

from fedtrue.report.labels import group
from fedtrue.report.table_formats import as_records, to_csv, to_markdown
from fedtrue.report.tables import table_of
from fedtrue.report.targets import COSTS, cost_to, rounds_to
from fedtrue.runner.records import read_run
from tests.report.made_runs import ACCURACY, LOSS, TRAIN_LOSS, write_run


def seeds(folder, *curves, **settings):
    """One group, a seed a curve."""
    runs = [write_run(folder / str(seed), values, seed=seed, **settings) for seed, values in enumerate(curves)]
    (only,) = group([read_run(run) for run in runs])
    return only


def costs(group, target, measure=ACCURACY):
    return [cost_to(group, measure, target, name) for name in COSTS]


def test_the_first_round_that_reaches_the_target_counts_even_if_the_next_falls_back(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1, 0.3, 0.2, 0.4]))
    assert rounds_to(run, ACCURACY, 0.25) == 2
    assert rounds_to(run, ACCURACY, 0.3) == 2  # at least as good
    assert rounds_to(run, ACCURACY, 0.5) is None


def test_a_lower_loss_is_the_better(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.1] * 4, loss=[3.0, 2.0, 1.0, 2.0]))
    assert [rounds_to(run, measure, 1.5) for measure in (LOSS, TRAIN_LOSS)] == [3, 3]
    assert rounds_to(run, LOSS, 3.0) == 1


def test_only_evaluated_rounds_can_reach_it(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.5] * 10, every=4))
    assert rounds_to(run, ACCURACY, 0.5) == 4


def test_a_round_without_a_number_does_not_reach_it(tmp_path):
    run = read_run(write_run(tmp_path / "run", [None, 0.5]))
    assert rounds_to(run, ACCURACY, 0.0) == 2


def test_costs_are_those_of_all_rounds_up_to_it_and_means_over_seeds(tmp_path):
    rounds, traffic, seconds = costs(seeds(tmp_path, [0.1, 0.5, 0.6], [0.1, 0.2, 0.2, 0.5]), 0.5)
    assert rounds == (3.0, approx(2**0.5), 2)  # after 2 and 4 rounds
    assert traffic == (9e6, approx(3e6 * 2**0.5), 2)  # 3 MB a round
    assert seconds == (1.5, approx(0.5 * 2**0.5), 2)  # 0.5 s a round


def test_a_target_at_the_last_round_costs_what_the_run_cost(tmp_path):
    whole = table_of([seeds(tmp_path, [0.1, 0.2, 0.5])], target=0.5, columns=["bytes", "seconds", *COSTS])
    (row,) = as_records(whole)
    assert (row["bytes_to"], row["seconds_to"]) == (row["bytes"], row["seconds"])


def test_there_is_no_mean_unless_every_seed_reached_it(tmp_path):
    found = costs(seeds(tmp_path, [0.5], [0.4], [0.6]), 0.5)
    assert found == [(None, None, 3, 2)] * 3


def test_a_seed_that_diverged_did_not_reach_it(tmp_path):
    assert costs(seeds(tmp_path, [0.5, 0.1], status="diverged"), 0.5) == [(None, None, 1, 0)] * 3


@pytest.fixture
def three(tmp_path):
    """Groups of two seeds: both reach 50 %, one does, none does."""
    curves = {"both": ([0.5], [0.1, 0.5]), "one": ([0.5], [0.1]), "none": ([0.1], [0.1])}
    return [
        seeds(tmp_path / name, *values, label=name, client={"name": name, "learning_rate": 0.1})
        for name, values in curves.items()
    ]


def test_a_cell_says_how_many_seeds_reached_it(three):
    assert to_markdown(table_of(three, target=0.5, columns=["run", *COSTS])) == (
        "| run | rounds to test accuracy 50 % | traffic to test accuracy 50 % | time to test accuracy 50 % |\n"
        "|---|--:|--:|--:|\n"
        "| both | 2 ± 1 | 4.5 MB ± 2.12 MB | 0.75 s ± 0.354 s |\n"  # 1 and 2 rounds
        "| one | 1 of 2 reached | 1 of 2 reached | 1 of 2 reached |\n"
        "| none | not reached | not reached | not reached |\n"
    )


def test_json_has_null_and_the_count_and_csv_nothing(three):
    table = table_of(three, target=0.5, columns=["rounds_to"])
    assert [row["rounds_to"]["value"] for row in as_records(table)] == [1.5, None, None]
    assert [row["rounds_to"].get("reached") for row in as_records(table)] == [None, 1, 0]
    assert to_csv(table).splitlines()[2:] == [",", ","]


def test_sorting_by_a_cost_puts_the_cheapest_first_and_the_unreached_last(three):
    by_rounds = table_of(three[::-1], target=0.5, sort="rounds_to")
    assert [each.name for each in by_rounds.groups] == ["both", "none", "one"]


def test_seeds_that_agree_have_a_deviation_of_nothing(tmp_path):
    table = table_of([seeds(tmp_path, [0.5], [0.5])], target=0.5, columns=[*COSTS])
    assert table.texts() == [["1 ± 0", "3 MB ± 0 B", "0.5 s ± 0 s"]]


def test_losses_are_named_without_percent(tmp_path):
    (column,) = table_of([seeds(tmp_path, [0.5])], "test.loss", target=1.5, columns=["rounds_to"]).columns
    assert column.title == "rounds to test loss 1.5"
