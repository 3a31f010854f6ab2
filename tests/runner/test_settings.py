"""Settings are recorded as used; settings that nothing reads are refused by name."""

import json
import shutil
import tomllib

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.methods import METHODS
from fedtrue.cli import main
from fedtrue.runner.build import build_method, load_task
from fedtrue.runner.settings import RunConfig, change, check_names, read_toml, run_settings
from fedtrue.spec import option_table
from tests.cases import quick

RATES = {"fedavg": ["--client-rate", "0.01"], "scaffold": ["--client-rate", "0.01", "--set", "option=I"]}


def refused(arguments, capsys):
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--method fedadam --client-rate 0.01 --correction joint", "fedadam has no correction: it takes client_rate"),
        ("--method fedadam --client-rate 0.01 --set server.epsilon=0.1", "fedadam has no server"),
        ("--method fedavg --client-rate 0.01 --client adam", "fedavg has no client"),
        ("--method fedavg --client-rate 0.01 --trace paper", "fedavg has no trace"),
        ("--method scaffold --client-rate 0.01 --client-state inherit", "scaffold has no client_state"),
        ("--method fedavg --client-rate 0.01 --set mu=0.1", "fedavg has no mu"),
        ("--method fedavg", "method 'fedavg' needs a client rate: --client-rate 0.1"),
        ("--set mu=0.1", "fedopt has no mu"),
        ("--set colour=red", "'colour' is not a setting"),
        ("--client adam --set client.beta=0.5", "adam has no beta (did you mean 'beta"),
        ("--method scaffold --client-rate 0.01 --set option=III", "scaffold: option 'III' is not known"),
    ],
)
def test_a_setting_that_the_method_does_not_take_is_refused_and_nothing_is_written(flags, said, tmp_path, capsys):
    arguments = ["run", "quadratic", "--rounds", "1", *flags.split(), "--out", str(tmp_path / "run")]
    assert said in refused(arguments, capsys)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_no_method_calls_an_option_as_runs_call_a_setting(monkeypatch):
    """In a config both stand at the top level, and the run's would be set."""
    assert not run_settings().keys() & {option for factory in METHODS.values() for option in option_table(factory)}
    monkeypatch.setitem(METHODS, "own", lambda client="sgd", cohort=3: None)
    with pytest.raises(ValueError, match="method 'own' calls an option as runs call a setting: rename 'cohort'"):
        check_names(RunConfig("quadratic", method={"name": "own"}))


@pytest.mark.parametrize("name", list(METHODS))
def test_the_config_of_a_run_is_the_spec_of_its_method(name, tmp_path, capsys):
    flags = ["--method", name, "--client-rate", "0.01"]
    assert main(["run", "quadratic", "--rounds", "2", *flags, "--out", str(tmp_path / "run"), "--json"]) == 0
    config = read_toml(tmp_path / "run" / "config.toml")
    method = build_method(config, load_task(config))
    assert method.name == name and config.method == method.spec
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["method"] == method.spec
    table = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert table["method"] == name
    for key, value in method.spec.items():
        assert key == "name" or table[key] == value
    assert ("correction" in table) == ("correction" in method.spec)  # only what the method has


def test_a_run_from_python_and_the_same_run_from_the_command_line_have_the_same_config(tmp_path):
    flags = "--client adam --client-rate 0.01 --server adagrad --server-rate 0.1 --rounds 3 --cohort 1 --seed 4"
    assert main(["run", "quadratic", *flags.split(), "--out", str(tmp_path / "cli"), "--json"]) == 0
    method = ft.fedopt(ft.client.adam(0.01), ft.server.adagrad(0.1))
    ft.train(ft.tasks.quadratic(), method, rounds=3, cohort=1, seed=4, out=tmp_path / "python")
    tables = [tomllib.loads((tmp_path / name / "config.toml").read_text()) for name in ("cli", "python")]
    origins = [table.pop("origin") for table in tables]
    assert tables[0] == tables[1]
    assert origins[0]["data"] == origins[1]["data"]


def test_a_rate_reaches_the_part_or_the_method_that_has_it():
    task = ft.tasks.quadratic()
    named = change(RunConfig("quadratic"), {"method": "fedavg", "client_rate": 0.3}, "test")
    assert build_method(named, task).spec["client_rate"] == 0.3
    parts = change(RunConfig("quadratic"), {"client": {"name": "adam", "learning_rate": 0.1}}, "test")
    assert build_method(change(parts, {"client_rate": 0.3}, "test"), task).spec["client"]["learning_rate"] == 0.3
    again = change(change(parts, {"client_rate": 0.3}, "test"), {"client": {"learning_rate": 0.7}}, "test")
    assert build_method(again, task).spec["client"]["learning_rate"] == 0.7


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rounds", "many", "rounds takes int, not 'many'"),
        ("rounds", 2.5, "rounds takes int, not 2.5"),
        ("seed", True, "seed takes int, not True"),
        ("tensorboard", 1, "tensorboard takes bool, not 1"),
        ("rate_multipliers", ["a"], r"rate_multipliers takes list\[float\], not"),
        ("local_steps", [1.5], r"local_steps takes int or list\[int\], not"),
        ("method", 3, "method takes str, not 3"),
        ("task", "mnist", "run.toml: a task is given once"),
        ("task_options", 3, r"run.toml: task_options takes a table, e.g. task_options = \{ seed = 1 \}, not 3"),
        ("client", ["sgd", "adam"], r"run.toml: client takes a name, e.g. '\w+', or a table.*, not \['sgd', 'adam'\]"),
        ("client", 3, "run.toml: client takes a name"),
        ("client", {"name": 3}, "run.toml: client.name takes a name"),
        ("correction", ["none"], "run.toml: correction takes a name"),
        ("sampling", [1], "run.toml: sampling takes a name"),
        ("client_rate", True, "run.toml: client_rate takes a number, e.g. client_rate = 0.1, not true"),
        ("client", {"learning_rate": True}, "run.toml: client.learning_rate takes a number"),
        (
            "server",
            {"learning_rate": {"name": "cosine", "initial": True}},
            "server.learning_rate.initial takes a number",
        ),
        ("mu", True, "run.toml: mu takes a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(key, value, said):
    with pytest.raises(ValueError, match=said):
        change(RunConfig("quadratic"), {key: value}, "run.toml")


@pytest.mark.parametrize(
    ("text", "said"), [("task = 3", "task takes str, not 3"), ("client = 3", "client takes a name")]
)
def test_a_file_with_a_value_of_the_wrong_type_is_refused_in_one_line_that_names_it(text, said, tmp_path, capsys):
    (tmp_path / "run.toml").write_text(f"{text}\n" if "task" in text else f'task = "quadratic"\n{text}\n')
    assert f"run.toml: {said}" in refused(["run", str(tmp_path / "run.toml")], capsys)


def test_switches_of_parts_are_true_or_false():
    changed = change(RunConfig("quadratic"), {"client": {"name": "momentum", "nesterov": True}}, "run.toml")
    assert changed.method["client"]["nesterov"] is True


def test_integers_are_accepted_as_floats():
    assert change(RunConfig("quadratic"), {"rate_multipliers": [1, 2]}, "run.toml").rate_multipliers == [1.0, 2.0]


# --- resuming a run ---------------------------------------------------------------------------------------------------


def run(folder, task=None, method=None, **changed):
    arguments = {"rounds": 4, "cohort": 2, "local_steps": 2, "seed": 1, "checkpoint_every": 2, **changed}
    task = task or ft.tasks.quadratic([[1.0], [2.0], [4.0]], [[0.0], [1.0], [2.0]])
    return ft.train(task, method or ft.fedopt(ft.client.adam(0.1)), out=folder, **arguments)


OTHERS = {
    "another method": ({"method": ft.methods.fedavg(0.1)}, "method was fedopt, is fedavg"),
    "another client": ({"method": ft.fedopt(ft.client.sgd(100.0))}, "client was .*'adam'.* is .*'sgd'"),
    "another rate": ({"method": ft.fedopt(ft.client.adam(0.2))}, "'learning_rate': 0.2"),
    "another correction": ({"method": ft.fedopt(ft.client.adam(0.1), correction="none")}, "correction was joint"),
    "another seed": ({"seed": 2}, "seed was 1, is 2"),
    "another cohort": ({"cohort": 3}, "cohort was 2, is 3"),
    "other steps": ({"local_steps": [1, 2, 3]}, r"local_steps was 2, is \[1, 2, 3\]"),
    "other data": ({"task": ft.tasks.quadratic([[1.0], [2.0], [5.0]], [[0.0], [1.0], [2.0]])}, "task_options was"),
    "another task": ({"task": ft.tasks.synthetic_tags(clients=3, words=20, tags=5)}, "task was quadratic"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    run(folder)
    return folder


@pytest.fixture
def finished(trained, tmp_path):
    """The folder of a run of its own, as `run` leaves it."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.parametrize("which", OTHERS)
def test_resuming_with_other_settings_reports_the_differences_and_writes_nothing(which, finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    changed, said = OTHERS[which]
    with pytest.raises(ValueError, match=f"holds another run \\(.*{said}"):
        run(finished, resume=True, **changed)
    after = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != ".lock"} == {
        path: data for path, data in before.items() if path.name != ".lock"
    }


def test_a_run_is_not_resumed_for_fewer_rounds_than_it_has(finished):
    with pytest.raises(ValueError, match="was started for 4 rounds, not 3: give at least 4 rounds"):
        run(finished, resume=True, rounds=3)
    assert tomllib.loads((finished / "config.toml").read_text())["rounds"] == 4


def test_arrays_of_the_same_shape_with_other_numbers_are_other_data(tmp_path):
    def task(offset):
        return ft.tasks.from_arrays(
            [{"x": np.arange(6, dtype=np.float32) + offset}] * 3,
            init=lambda key: np.zeros((), np.float32),
            loss=lambda params, example: (params - example["x"]) ** 2,
        )

    run(tmp_path / "run", task(0))
    with pytest.raises(ValueError, match="the train data is not the same"):
        run(tmp_path / "run", task(1), resume=True)
    run(tmp_path / "run", task(0), resume=True)


def test_a_run_can_be_resumed_for_more_rounds_and_its_config_records_it(finished, tmp_path):
    run(finished, resume=True, rounds=7)
    whole = run(tmp_path / "whole", rounds=7)
    parts = run(finished, resume=True, rounds=7)
    np.testing.assert_array_equal(parts.params, whole.params)
    assert tomllib.loads((finished / "config.toml").read_text())["rounds"] == 7


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_diverges_answers_in_valid_json(capsys):
    """A client rate far too large: the weights overflow, and JSON has no word for infinity."""
    words = "run quadratic --method fedavg --client-rate 1 --rounds 400 --local-steps 2,30 --json"
    assert main(words.split()) == 0
    json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_a_run_with_python_parts_says_how_it_is_diagnosed(tmp_path, capsys):
    own = ft.fedopt(ft.client.sgd(lambda round_index: 0.1))
    run(tmp_path / "run", method=own)
    assert "ft.diagnose(RUN, task, method)" in refused(["diagnose", str(tmp_path / "run")], capsys)


# --- methods with other local or server steps, everywhere ------------------------------------------------------------

NEW = {
    "fedprox": ["--client-rate", "0.02", "--set", "mu=0.5"],
    "scaffold": ["--client-rate", "0.02", "--set", "option=II"],
    "mimelite": ["--client", "adam", "--client-rate", "0.02"],
    "slowmo": ["--client-rate", "0.02", "--server-rate", "0.8", "--set", "beta=0.5"],
    "fednova": ["--client", "momentum", "--client-rate", "0.02", "--set", "mu=0.5"],
    "feddyn": ["--client", "adagrad", "--client-rate", "0.02", "--set", "alpha=2"],
    "fedexp": ["--client-rate", "0.02", "--correction", "joint"],
}


@pytest.mark.parametrize("name", quick(NEW, "scaffold", "feddyn"))
def test_a_new_method_runs_resumes_and_is_diagnosed_from_the_command_line(name, tmp_path, capsys):
    common = ["run", "quadratic", "--method", name, *NEW[name], "--cohort", "1", "--local-steps", "2,5"]
    common += ["--set", "task_options.noise=0.3", "--checkpoint-every", "4", "--json"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*common, "--rounds", "9", "--out", str(whole)]) == 0
    assert main([*common, "--rounds", "9", "--out", str(parts)]) == 0
    for left in ("00000009.json", "00000009.safetensors"):
        (parts / "checkpoints" / left).unlink()
    (parts / "summary.json").unlink()
    assert main(["resume", str(parts)]) == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    capsys.readouterr()
    assert main(["diagnose", str(whole), "--orders", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["method"].startswith(name) and answer["sentence"].endswith(".")


SWEEP = """
task = "quadratic"
rounds = 5
local_steps = [2, 5]
[sweep.product]
client_rate = [0.01, 0.03]
[[sweep.cells]]
method = "fedprox"
mu = 0.1
[[sweep.cells]]
method = "fedprox"
mu = 0.4
[[sweep.cells]]
method = "scaffold"
option = "I"
[[sweep.cells]]
method = "mimelite"
client = "adagrad"
"""
OTHER_SERVER_STEPS = """
task = "quadratic"
rounds = 5
local_steps = [2, 5]
client_rate = 0.02
[[sweep.cells]]
method = "slowmo"
beta = 0.5
[[sweep.cells]]
method = "slowmo"
beta = 0.9
server_rate = 0.5
[[sweep.cells]]
method = "fednova"
[[sweep.cells]]
method = "fednova"
tau_eff = 3.0
[[sweep.cells]]
method = "fednova"
tau_eff = 4.0
[[sweep.cells]]
method = "feddyn"
alpha = 2.0
[[sweep.cells]]
method = "feddyn"
alpha = 5.0
[[sweep.cells]]
method = "fedexp"
epsilon = 0.001
[[sweep.cells]]
method = "fedexp"
epsilon = 1.0
"""
GROUPS = {"local steps": (SWEEP, [4, 2, 2]), "server steps": (OTHER_SERVER_STEPS, [2, 1, 2, 2, 2])}


@pytest.mark.parametrize("compared", [1, pytest.param(4, marks=pytest.mark.slow)], ids=["one per program", "all"])
@pytest.mark.parametrize("name", quick(GROUPS, "local steps"))
def test_cells_of_a_sweep_that_differ_in_the_numbers_of_any_method_share_a_program(name, compared, tmp_path):
    from fedtrue.runner.sweep.run import prepare

    text, sizes = GROUPS[name]
    (tmp_path / "sweep.toml").write_text(text)
    cells, groups = prepare(tmp_path / "sweep.toml", tmp_path / "out")
    assert len(cells) == sum(sizes)
    assert [len(group) for _, group in groups] == sizes  # mu, beta and the rate are numbers; tau_eff "mean" is not
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    for cell in [cell for _, group in groups for cell in group[-compared:]]:
        alone = tmp_path / "alone" / cell.name
        config = str(tmp_path / "out" / cell.name / "config.toml")
        assert main(["run", config, "--out", str(alone), "--json"]) == 0
        ours, theirs = (ft.load_run(path).params for path in (tmp_path / "out" / cell.name, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
