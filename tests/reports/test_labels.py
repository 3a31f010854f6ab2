"""Which settings differ, which runs form a group, how groups are named."""

from fedtrue.reports.labels import (
    describe_settings,
    differing_settings,
    flatten_config,
    group_runs,
    rate_texts,
    unique_names,
)
from fedtrue.runner.records import find_runs, read_run
from tests.reports.made_runs import write_run


def read(*folders):
    return [read_run(folder) for folder in folders]


def test_flattening_joins_keys_with_dots_and_leaves_out_settings_of_the_display():
    config = {"task": "mnist", "label": "x", "reference": 1.0, "client": {"name": "adam", "learning_rate": 0.1}}
    assert flatten_config(config) == {"task": "mnist", "client.name": "adam", "client.learning_rate": 0.1}


def test_only_keys_whose_values_differ_are_columns_and_a_missing_key_differs_from_a_present_one():
    settings = [{"a": 1, "b": [2, 30], "c": 5}, {"a": 1, "b": [2, 31]}]
    assert differing_settings(settings) == ["b", "c"]


def test_options_that_follow_from_the_name_of_a_part_have_no_column_but_rates_do():
    adam = {"client.name": "adam", "client.beta1": 0.9, "client.learning_rate": 0.1}
    sgd = {"client.name": "sgd", "client.learning_rate": 1.0}
    assert differing_settings([adam, sgd]) == ["client.name", "client.learning_rate"]
    assert "client.beta1" in differing_settings(
        [adam, sgd, {**adam, "client.beta1": 0.8}]
    )  # the name does not determine it


def test_one_run_has_no_differing_columns():
    assert differing_settings([{"a": 1}]) == []


def test_runs_that_differ_only_in_seed_are_one_group_whatever_their_folders_are_called(tmp_path):
    runs = read(*(write_run(tmp_path / f"run-{seed}", [0.5], seed=seed) for seed in (2, 0, 1)))
    (only,) = group_runs(runs)
    assert only.seeds == [0, 1, 2]
    assert only.name == "shakespeare"  # folders differ but settings do not: the name of the task is left


def test_cells_of_a_sweep_are_named_after_the_settings_that_differ(tmp_path):
    (tmp_path / "sweep.toml").write_text("")
    clients = ({"name": "sgd", "learning_rate": rate} for rate in (0.1, 0.2))
    folders = [write_run(tmp_path / f"00{i}", [0.5], client=client) for i, client in enumerate(clients)]
    assert [group.name for group in group_runs(read(*folders))] == ["client rate 0.1", "client rate 0.2"]


def test_runs_that_differ_in_a_rate_are_two_groups(tmp_path):
    rates = {"a": 0.1, "b": 0.2}
    folders = [
        write_run(tmp_path / name, [0.5], client={"name": "sgd", "learning_rate": rate}) for name, rate in rates.items()
    ]
    assert [group.name for group in group_runs(read(*folders))] == ["a", "b"]


def test_equal_names_get_the_settings_that_differ_or_else_a_number():
    assert unique_names([("x", "rate 1"), ("x", "rate 2"), ("y", "rate 3")]) == ["x (rate 1)", "x (rate 2)", "y"]
    assert unique_names([("x", ""), ("x", "")]) == ["x #1", "x #2"]


def test_a_description_reads_like_english():
    settings = {"client.name": "adam", "correction": "none", "server.learning_rate": 0.1}
    assert describe_settings(settings, list(settings)) == "client adam, no correction, server rate 0.1"
    settings["client.learning_rate"] = 0.3
    assert describe_settings(settings, list(settings)) == "client adam 0.3, no correction, server rate 0.1"


def test_the_status_of_a_group_counts_its_diverged_seeds(tmp_path):
    states = ("finished", "diverged", "finished")
    folders = [write_run(tmp_path / f"{i}", [0.5], seed=i, status=state) for i, state in enumerate(states)]
    assert group_runs(read(*folders))[0].status == "1 of 3 diverged"


def test_rates_have_as_few_digits_as_keep_them_distinct():
    assert rate_texts([10**-2.5, 0.01, 10**-1.5]) == ["0.0032", "0.01", "0.032"]
    assert rate_texts([0.101, 0.102]) == ["0.101", "0.102"]


def test_a_sweep_folder_is_read_as_all_its_runs(made_runs):
    assert len(find_runs([made_runs["sweep"]])) == 56  # 2 panels × 7 client rates × 4 server rates


def test_a_correction_with_options_has_its_name_under_the_key_of_one_without():
    assert flatten_config({"correction": "moments"}) == {"correction": "moments"}
    with_options = flatten_config({"correction": {"name": "moments", "lagged": True}})
    assert with_options == {"correction": "moments", "correction.lagged": True}
    assert differing_settings([{"correction": "moments"}, with_options]) == ["correction.lagged"]
