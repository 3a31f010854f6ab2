"""`fedtrue run my_file.py:task`: a user's own task has the commands that ours have."""

import json
import tomllib

import numpy as np
import pytest
from run_folders import left_by

import fedtrue as ft
from fedtrue.cli import main

pytestmark = pytest.mark.usefixtures("quick_compilation")
FILE = """
import jax.numpy as jnp
import numpy as np
import neighbour
import fedtrue as ft

def task(clients=4, spread=1.0):
    generator = np.random.default_rng(0)
    data = [{"x": spread * generator.normal(size=5) + i} for i in range(clients)]
    return ft.tasks.from_arrays(data, lambda key: jnp.zeros(()), neighbour.loss, batch_size=2, test=data)

fixed = task(3)
number = 3
def wrong(): return 3
def needs(clients, spread=1.0): return task(clients, spread)
"""
NEIGHBOUR = "def loss(params, example): return (params - example['x']) ** 2\n"
METHOD = ["--client", "sgd", "--client-rate", "0.1", "--correction", "none", "--lanes", "1"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "my_file.py").write_text(FILE)
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "my_file.py"


def test_a_run_is_resumed_diagnosed_and_shown_in_a_table(file, tmp_path, monkeypatch, capsys):
    options = ["--set", "task_options.clients=5", "--rounds", "6", "--checkpoint-every", "3"]
    assert main(["run", "my_file.py:task", *METHOD, *options, "--out", "runs/first"]) == 0
    config = tomllib.loads((tmp_path / "runs" / "first" / "config.toml").read_text())
    assert config["task"] == f"{file}:task" and config["task_options"] == {"clients": 5}
    assert len(config["origin"]["task_file"]) == 16
    before = left_by(tmp_path / "runs" / "first")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the folder knows where the file is
    assert main(["run", "../runs/first/config.toml", "--out", "../runs/again"]) == 0
    assert left_by(tmp_path / "runs" / "again") == before
    (tmp_path / "runs" / "first" / "summary.json").unlink()
    assert main(["resume", "../runs/first"]) == 0
    assert left_by(tmp_path / "runs" / "first") == before
    capsys.readouterr()
    assert main(["diagnose", "../runs/first", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["round"] == 6
    assert main(["table", "../runs", "--columns", "run,task", "--format", "csv"]) == 0
    assert "my_file.py:task" in capsys.readouterr().out


def test_a_sweep_over_an_own_task_trains_its_cells(file, tmp_path):
    (tmp_path / "sweep.toml").write_text(
        'task = "my_file.py:task"\nrounds = 2\nlanes = 1\ncorrection = "none"\nclient = "sgd"\n'
        "[sweep.product]\nclient.learning_rate = [0.1, 0.2]\ntask_options.spread = [0.0, 2.0]\n"
    )
    runs = ft.sweep(tmp_path / "sweep.toml", tmp_path / "cells")
    assert [run.config["task"] for run in runs] == [f"{file}:task"] * 4
    assert len({float(run.params) for run in runs}) == 4


def test_a_file_that_has_changed_is_said_and_one_that_is_gone_is_named(file, tmp_path, capsys):
    assert main(["run", "my_file.py", *METHOD, "--rounds", "2", "--out", "run"]) == 0
    file.write_text(FILE + "\n# a comment\n")
    for command in (["resume", "run", "--rounds", "3"], ["diagnose", "run"]):
        with pytest.warns(UserWarning, match=r"my_file\.py:task has changed since run was started"):
            assert main(command) == 0
    file.write_text(FILE.replace("+ i}", "- i}"))  # other data
    capsys.readouterr()
    assert main(["resume", "run", "--rounds", "4"]) == 2
    assert "the train data is not the same" in capsys.readouterr().err
    file.unlink()
    assert main(["resume", "run", "--rounds", "4"]) == 2
    assert f"{file} does not exist" in capsys.readouterr().err


def test_a_python_run_of_a_task_from_a_file_is_resumed_by_the_command_line(file, tmp_path):
    task, method = ft.tasks.from_file("my_file.py:task", clients=3), ft.fedopt(ft.client.sgd(0.1))
    ft.train(task, method, rounds=2, lanes=1, out=tmp_path / "run")
    assert main(["resume", "run", "--rounds", "3"]) == 0
    whole = ft.train(task, method, rounds=3, lanes=1)
    np.testing.assert_array_equal(ft.load_run(tmp_path / "run").params, whole.params)


@pytest.mark.parametrize(
    "changed, content, line", [("my_file.py", "\ndef task(:\n", 2), ("own_losses.py", "def loss(:\n", 1)]
)
def test_a_syntax_error_in_a_file_or_its_neighbour_is_one_line(changed, content, line, file, capsys):
    file.write_text("import own_losses\n")  # a name that no other test has imported
    (file.parent / changed).write_text(content)
    assert main(["run", "my_file.py", *METHOD]) == 2
    error = capsys.readouterr().err
    assert f"{file.parent / changed}, line {line}: invalid syntax: correct the file" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "task, options, message",
    [
        ("nowhere.py:task", [], "nowhere.py does not exist: give the Python file that defines the task"),
        ("my_file.py:fxied", [], "has no 'fxied' (did you mean 'fixed'?)"),
        ("my_file.py:number", [], "is int: it must be a Task, or a function that returns one"),
        ("my_file.py:wrong", [], "returned int, not a Task"),
        ("my_file.py:task", ["--set", "task_options.client=3"], "task has no client (did you mean 'clients'?)"),
        ("my_file.py:fixed", ["--set", "task_options.clients=3"], "fixed has no clients: it takes no options"),
        ("my_file.py:needs", [], "my_file.py:needs needs clients: give --set task_options.clients=VALUE"),
    ],
)
def test_a_wrong_file_name_or_option_is_one_line(task, options, message, file, capsys):
    assert main(["run", task, *METHOD, *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
