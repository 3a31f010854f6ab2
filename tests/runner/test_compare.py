"""A comparison is fair, goes on where it stopped, and says which methods have no row and why."""

import json

import pytest
from pytest import approx

import fedtrue as ft
from fedtrue.algorithm.methods import METHODS
from fedtrue.cli import main
from fedtrue.reports.comparison import comparison_table
from fedtrue.runner.build import load_task
from fedtrue.runner.comparison.contenders import cell_settings, contenders, split_methods
from fedtrue.runner.comparison.rates import at_edge, grid_shape, rate_grid, rates_of, trials_of, with_rates
from fedtrue.runner.comparison.run import comparable, compare_methods, train_sweep
from fedtrue.runner.comparison.setting import compared_config
from fedtrue.runner.settings import RunConfig, set_one
from fedtrue.runner.stop import Stopped

DIVERGING = "fedopt(client=sgd(1e200), correction=none)"
SETTING = compared_config("quadratic", 15, {"cohort": 1, "local_steps": 3})
HOW = {"budget": 2, "seeds": 2, "methods": ["fedpd", DIVERGING]}


@pytest.fixture(scope="module")
def stopped_and_continued(tmp_path_factory):
    """A comparison that is killed between its stages, the records of its first stage, and the same one continued."""
    out = tmp_path_factory.mktemp("compare") / "out"

    def train_rates_only(file, folder):
        if folder.name == "seeds":
            raise RuntimeError("killed")
        train_sweep(file, folder)

    with pytest.raises(RuntimeError, match="killed"):
        compare_methods(SETTING, out, train=train_rates_only, **HOW)
    before = {path: path.stat().st_mtime_ns for path in (out / "tuning").glob("*/metrics.jsonl")}
    return out, before, comparison_table(compare_methods(SETTING, out, **HOW))


def test_a_comparison_that_was_killed_goes_on_and_trains_no_cell_twice(stopped_and_continued):
    out, before, found = stopped_and_continued
    assert before and {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list((out / "seeds").glob("*/summary.json"))) == 2  # FedAvg with two seeds
    assert [row["run"] for row in found.rows] == ["fedavg"]


def test_a_comparison_that_was_stopped_says_that_the_same_command_goes_on(tmp_path):
    def stopped(file, folder):
        raise Stopped(2, 3, folder)

    with pytest.raises(Stopped, match=r"stopped after round 3: the same command, .* goes on with the comparison in"):
        compare_methods(SETTING, tmp_path / "out", train=stopped, **HOW)


def test_a_method_that_cannot_run_is_refused_with_its_reason_and_the_others_go_on(stopped_and_continued):
    _, _, found = stopped_and_continued
    ((label, reason),) = found.comparison.refused
    assert label == "fedpd" and "needs all 2 clients" in reason
    assert "Refused: fedpd" in found.markdown


def test_a_method_whose_runs_all_diverge_is_said_to(stopped_and_continued):
    _, _, found = stopped_and_continued
    assert found.comparison.diverged == [DIVERGING]
    assert f"Diverged with every learning rate: {DIVERGING}" in found.markdown


def test_the_chosen_rates_are_those_with_the_lowest_validation_loss(stopped_and_continued):
    out, _, found = stopped_and_continued
    losses = {
        run.config["client_rate"]: run.summary["mean_last"]["validation"]["loss"]["value"]
        for run in map(ft.load_run, sorted((out / "tuning").glob("*fedavg*")))
    }
    assert len(losses) == 2 and found.comparison.chosen_by == "validation.loss"
    chosen = found.comparison.chosen[0]
    assert chosen.rates["client"] == min(losses, key=losses.get)
    assert (chosen.value, chosen.median) == (min(losses.values()), approx(sum(losses.values()) / 2))


def test_another_comparison_in_the_same_folder_is_refused(stopped_and_continued, capsys):
    out, _, _ = stopped_and_continued
    assert main(["compare", "quadratic", "--rounds", "3", "-o", str(out)]) == 2
    assert "holds another comparison" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, cure",
    [
        (["--budget", "0"], "budget must be an integer of at least 1"),
        (["--methods", "scafold"], "did you mean 'scaffold'"),
        (["--methods", "fedopt(client=preconditioned)"], "has no known rates: give one"),
        (["--tuning-seeds", "0"], "tuning_seeds must be an integer of at least 1"),
        (["--over", "sed"], "did you mean 'seed'"),
        (["--methods", "fedopt(client=adm)"], "client 'adm' is not known (did you mean 'adam'?)"),
        (["--methods", ""], "--methods names no method: give some"),
        (["--rounds", "0"], "rounds must be an integer of at least 1, not 0"),
        (["--set", "rounds=0"], "rounds must be an integer of at least 1, not 0"),
        (["--set", "mu=0.5"], 'compare does not use mu: give it with the method, --methods "fedprox(mu=0.5)"'),
        (["--set", "client.epsilon=1e-5"], '--methods "fedopt(client=NAME(epsilon=1e-05))"'),
        (["--set", "compression=sign"], "compare does not use compression: give it with the method"),
        (["--set", "client_rate=0.1"], "compare does not use client_rate: give it with the method"),
        (["--set", "method=scaffold"], 'compare does not use method: give it with the method, --methods "scaffold"'),
        (["--set", "seed=3"], "compare does not use seed: it gives the runs of a method seed 0, 1, 2 …"),
        (["--set", "label=mine"], "compare does not use label"),
        (["--picture", "rows.jpg"], "the name must end with .png, .pdf or .svg"),
    ],
)
def test_errors_name_the_cure(arguments, cure, tmp_path, capsys):
    assert main(["compare", "quadratic", *arguments, "-o", f"{tmp_path}/out"]) == 2
    assert cure in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_settings_of_the_method_are_refused_in_python_too(tmp_path):
    with pytest.raises(ValueError, match=r'does not use mu: give it with the method, methods=\["fedprox\(mu=0.5\)"\]'):
        ft.compare("quadratic", tmp_path / "out", settings={"mu": 0.5})


def test_the_seed_is_a_setting_where_the_runs_differ_in_another_one():
    assert compared_config("quadratic", None, {"seed": 3}, over="task_options.split").seed == 3


def test_a_file_whose_method_and_seed_are_not_used_says_so(tmp_path):
    (tmp_path / "run.toml").write_text(
        'task = "quadratic"\ncohort = 1\nseed = 3\nmethod = "fedprox"\nmu = 0.5\nclient_rate = 0.1\n'
    )
    with pytest.warns(UserWarning, match=r"run.toml: compare does not use method, mu, client_rate, seed: every method"):
        config = compared_config(f"{tmp_path}/run.toml", None, {})
    assert config.cohort == 1 and dict(config.method) == {"name": "fedopt"}


def test_differences_from_fedavg_are_paired_and_costs_to_a_target_are_shown(tmp_path, capsys):
    command = ["compare", "quadratic", "--methods", "fedprox", "--budget", "1", "--seeds", "2", "--rounds", "3"]
    more = ["--set", "local_steps=2", "--target", "1e9", "--picture", f"{tmp_path}/new/differences.png"]
    assert main([*command, *more, "-o", f"{tmp_path}/out", "--json"]) == 0
    assert (tmp_path / "new" / "differences.png").read_bytes().startswith(b"\x89PNG")
    rows = {row["run"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    value = lambda run: rows[run]["mean_last.test.loss"]["value"]
    difference = rows["fedprox"]["difference.mean_last.test.loss"]
    assert difference["pairs"] == 2 and difference["value"] == approx(value("fedprox") - value("fedavg"))
    assert rows["fedavg"]["rounds_to"]["value"] == 1  # 1e9 is reached at once


@pytest.mark.parametrize("budget, shape", [(24, (6, 4)), (8, (4, 2)), (7, (3, 2)), (2, (2, 1)), (1, (1, 1))])
def test_two_rates_share_the_budget_and_one_rate_has_all_of_it(budget, shape):
    assert grid_shape(budget) == shape
    assert len(trials_of({"name": "fedavg"}, budget)) == shape[0] * shape[1]
    assert len(trials_of({"name": "fedexp"}, budget)) == budget  # its server has no rate


def test_grids_contain_the_documented_default_and_span_at_most_three_decades():
    for count in (1, 2, 5, 24):
        grid = rate_grid(0.1, count)
        assert 0.1 in grid and grid == sorted(grid) and grid[-1] / grid[0] <= 1001  # rounded to four digits
    assert rates_of({"name": "fedadam"})["server"].centre == 0.1  # as its docstring has it


def test_every_method_is_built_from_each_way_to_give_its_rates():
    for contender in contenders(["all"]):
        rates = trials_of(contender.spec, 1)[0]
        built = ft.from_spec(with_rates(contender.spec, rates))
        settings = cell_settings(contender, rates)
        config = RunConfig("quadratic")
        for key, value in settings.items():
            config = set_one(config, key, value, "cell")
        assert ft.from_spec(dict(config.method)).spec == built.spec
    assert {contender.spec["name"] for contender in contenders(["all"])} == set(METHODS)


def test_an_edge_is_said_only_where_several_rates_were_tried():
    lowest = {"client": rate_grid(0.1, 6)[0], "server": 1.0}
    assert at_edge({"name": "fedavg"}, lowest, 24) == ["client"]
    assert at_edge({"name": "fedavg"}, {"client": 0.1, "server": 1.0}, 1) == []


def test_methods_are_split_at_commas_outside_of_calls():
    assert split_methods("fedavg, fedopt(client=adam, correction=none)") == [
        "fedavg",
        "fedopt(client=adam, correction=none)",
    ]
    with pytest.raises(ValueError, match="same method"):
        contenders(["fedopt", "fedopt(client=adagrad)"])


def test_rates_are_chosen_on_another_split_than_those_reported(tmp_path):
    (tmp_path / "my.py").write_text(
        "import fedtrue as ft\ndef task(split=0): return ft.tasks.quadratic(evaluate=True)\n"
    )
    how = {"budget": 1, "seeds": 2, "methods": [], "rounds": 1, "over": "task_options.split"}
    found = ft.compare(f"{tmp_path}/my.py", tmp_path / "out", **how)
    splits = lambda stage: [run.config["task_options"]["split"] for run in map(ft.load_run, stage.glob("0*"))]
    assert splits(tmp_path / "out" / "tuning") == [0] and sorted(splits(found.comparison.runs)) == [1, 2]
    assert len(found.rows) == 1  # the mean over both


@pytest.mark.parametrize(
    "tuning_seeds, second_hessian, rate, diverged", [(1, 25.0, 0.1, 0), (2, 25.0, 0.03162, 0), (2, 50.0, 0.03162, 1)]
)
def test_rates_are_chosen_by_the_mean_over_the_tuning_seeds(tmp_path, tuning_seeds, second_hessian, rate, diverged):
    """A step of rate r multiplies the distance by 1 − r h. On split 0, h = 10, rate 0.1 ends at the minimum; on split 1
    it multiplies by −1.5 or −4, which is not finite after 400 rounds, and rate 0.032 by 0.2 or −0.6."""
    (tmp_path / "my.py").write_text(
        "import fedtrue as ft\n"
        "def task(split=0):\n"
        f"    hessian = [10.0, {second_hessian}, 10.0][split]\n"
        "    return ft.tasks.quadratic(hessians=[[hessian]], minima=[[1.0]], evaluate=True)\n"
    )
    how = {"budget": 2, "seeds": 1, "methods": [], "rounds": 400, "settings": {"evaluate_every": 100}}
    how |= {"over": "task_options.split", "tuning_seeds": tuning_seeds}
    found = ft.compare(f"{tmp_path}/my.py", tmp_path / "out", **how)
    chosen = found.comparison.chosen[0]
    assert (chosen.rates["client"], chosen.diverged, chosen.trials) == (rate, diverged, 2)
    (reported,) = (run.config["task_options"]["split"] for run in map(ft.load_run, found.comparison.runs.glob("0*")))
    assert reported == tuning_seeds  # the first split on which nothing was chosen


def test_a_task_without_validation_data_holds_out_clients_that_never_train(tmp_path):
    (tmp_path / "my.py").write_text(
        "import jax.numpy as jnp, numpy as np, fedtrue as ft\n"
        "clients = [{'x': np.full(2, float(i))} for i in range(10)]\n"
        "loss = lambda params, example: (params - example['x']) ** 2\n"
        "task = ft.tasks.from_arrays(clients, lambda key: jnp.zeros(()), loss, test=clients)\n"
    )
    config, task, split = comparable(RunConfig(f"{tmp_path}/my.py"))
    assert (split, len(task.train), len(task.unseen)) == ("unseen", 9, 1)
    assert len(load_task(config).train) == 9  # the settings say so, so every run of both stages holds out the same


def test_a_quadratic_records_its_objective_and_distance_at_the_servers_weights():
    task = ft.tasks.quadratic(noise=5.0, evaluate=True)
    found = ft.evaluate(task, task.minimiser)["test"].metrics
    each = [0.5 * (task.minimiser - m) @ h @ (task.minimiser - m) for h, m in zip(task.hessians, task.minima)]
    assert found["loss"] == approx(sum(each) / 2) and found["distance"] == approx(0, abs=1e-12)
