"""Which settings differ, what belongs together, what it is called."""

from fedtrue.report.labels import described, differing, distinct, flatten, group, rate_texts
from fedtrue.runner.records import find_runs, read_run
from tests.report.made_runs import write_run


def read(*folders):
    return [read_run(folder) for folder in folders]


def test_flattening_dots_the_tables_and_leaves_out_how_a_run_is_shown():
    config = {"task": "mnist", "label": "x", "reference": 1.0, "client": {"name": "adam", "learning_rate": 0.1}}
    assert flatten(config) == {"task": "mnist", "client.name": "adam", "client.learning_rate": 0.1}


def test_only_keys_whose_values_differ_are_columns_and_a_missing_key_differs_from_a_present_one():
    settings = [{"a": 1, "b": [2, 30], "c": 5}, {"a": 1, "b": [2, 31]}]
    assert differing(settings) == ["b", "c"]


def test_options_that_the_parts_name_tells_have_no_column_but_rates_do():
    adam = {"client.name": "adam", "client.beta1": 0.9, "client.learning_rate": 0.1}
    sgd = {"client.name": "sgd", "client.learning_rate": 1.0}
    assert differing([adam, sgd]) == ["client.name", "client.learning_rate"]
    assert "client.beta1" in differing([adam, sgd, {**adam, "client.beta1": 0.8}])  # now the name does not tell it


def test_one_run_has_no_differing_columns():
    assert differing([{"a": 1}]) == []


def test_runs_that_differ_only_in_seed_are_one_group_whatever_their_folders_are_called(tmp_path):
    runs = read(*(write_run(tmp_path / f"run-{seed}", [0.5], seed=seed) for seed in (2, 0, 1)))
    (only,) = group(runs)
    assert only.seeds == [0, 1, 2]
    assert only.name == "shakespeare"  # folders differ and no setting does: the task's name is what they share


def test_cells_that_a_sweep_named_are_called_by_what_differs(tmp_path):
    (tmp_path / "sweep.toml").write_text("")
    clients = ({"name": "sgd", "learning_rate": rate} for rate in (0.1, 0.2))
    folders = [write_run(tmp_path / f"00{i}", [0.5], client=client) for i, client in enumerate(clients)]
    assert [each.name for each in group(read(*folders))] == ["client rate 0.1", "client rate 0.2"]


def test_runs_that_differ_in_a_rate_are_two_groups(tmp_path):
    rates = {"a": 0.1, "b": 0.2}
    folders = [
        write_run(tmp_path / name, [0.5], client={"name": "sgd", "learning_rate": rate}) for name, rate in rates.items()
    ]
    assert [each.name for each in group(read(*folders))] == ["a", "b"]


def test_names_that_clash_are_told_apart_by_what_differs_and_else_by_number():
    assert distinct([("x", "rate 1"), ("x", "rate 2"), ("y", "rate 3")]) == ["x (rate 1)", "x (rate 2)", "y"]
    assert distinct([("x", ""), ("x", "")]) == ["x #1", "x #2"]


def test_a_description_reads_like_english():
    settings = {"client.name": "adam", "correction": "none", "server.learning_rate": 0.1}
    assert described(settings, list(settings)) == "client adam, no correction, server rate 0.1"
    settings["client.learning_rate"] = 0.3
    assert described(settings, list(settings)) == "client adam 0.3, no correction, server rate 0.1"


def test_a_group_says_how_many_of_its_seeds_diverged(tmp_path):
    states = ("finished", "diverged", "finished")
    folders = [write_run(tmp_path / f"{i}", [0.5], seed=i, status=state) for i, state in enumerate(states)]
    assert group(read(*folders))[0].status == "1 of 3 diverged"


def test_rates_are_written_with_as_few_digits_as_tell_them_apart():
    assert rate_texts([10**-2.5, 0.01, 10**-1.5]) == ["0.0032", "0.01", "0.032"]
    assert rate_texts([0.101, 0.102]) == ["0.101", "0.102"]


def test_a_sweep_folder_stands_for_the_runs_below_it(made_runs):
    assert len(find_runs([made_runs["sweep"]])) == 56  # 2 panels × 7 client rates × 4 server rates
