"""Fine-tuning per client: what is gained on a client's own held-out data, derived by hand on quadratics."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from pytest import approx

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.commands.personalising import bin_edges
from fedtrue.runner.personalise import matching_clients

MINIMA = {"ann": 1.0, "bob": 3.0, "eve": 8.0}
FILE = """
import jax.numpy as jnp, numpy as np, fedtrue as ft
def task(test=True):
    train = {name: {"x": np.array([x, x])} for name, x in %s.items()}
    held_out = {name: train[name] for name in ("eve", "ann")} if test else None
    loss = lambda params, example: (params - example["x"]) ** 2 / 2
    return ft.tasks.from_arrays(train, lambda key: jnp.zeros(()), loss, test=held_out, batch_size=2)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """F_i(x) = (x − x_i)²/2, trained to the mean of the minima; bob has no test data."""
    folder = tmp_path_factory.mktemp("personalise")
    (folder / "my.py").write_text(FILE % MINIMA)
    settings = [
        "--client",
        "sgd",
        "--client-rate",
        "0.5",
        "--correction",
        "none",
        "--rounds",
        "60",
        "--local-steps",
        "3",
    ]
    assert main(["run", f"{folder}/my.py", *settings, "--out", f"{folder}/run", "--json"]) == 0
    return folder / "run"


def test_no_step_gains_exactly_nothing(run):
    found = ft.personalise(run, steps=0)
    assert found.gains().tolist() == [0.0, 0.0] and found.statistics()["loses"] == 0


def test_the_gain_is_that_of_gradient_descent_towards_the_clients_own_minimum(run):
    found = ft.personalise(run, steps=2, client_rate=0.1)
    model = np.mean(list(MINIMA.values()))  # 4: equal steps and weights
    distances = np.array([MINIMA[name] for name in found.clients]) - model
    contraction = (1 - 0.1) ** 2  # x_{k+1} − x_i = (1 − η) (x_k − x_i)
    assert found.clients == ["eve", "ann"]
    assert found.gains() == approx(distances**2 / 2 * (1 - contraction**2), rel=1e-5)


def test_the_runs_own_client_optimizer_and_steps_are_the_default(run):
    found = ft.personalise(run)
    assert found.optimizer.spec["learning_rate"] == 0.5 and found.steps.tolist() == [3, 3]
    assert found.after["loss"] == approx(found.before["loss"] * 0.5**6, rel=1e-4)  # (1 − η)^{2·3}


def test_a_client_without_test_data_is_left_out_and_counted(run, capsys):
    assert main(["personalise", str(run), "--steps", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["clients"], answer["left_out"], answer["each"]["client"]) == (2, 1, ["eve", "ann"])


def test_held_out_examples_are_never_those_of_the_steps(tmp_path):
    clients = [{"x": np.array([1.0, 1.0, 1.0, 9.0])}, {"x": np.array([5.0, 5.0, 5.0, -3.0])}]
    loss = lambda params, example: (params - example["x"]) ** 2 / 2
    task = ft.tasks.from_arrays(clients, lambda key: jnp.asarray(3.0), loss, batch_size=4)
    method = ft.methods.fedavg(0.0)  # stays at 3
    ft.train(task, method, rounds=1, out=tmp_path / "run")
    found = ft.personalise(tmp_path / "run", task, method, steps=1, client_rate=1.0, hold_out=0.25)
    # one full step leads to 1 and 5, the means of the first three examples: 9 and −3 are evaluated only
    assert found.gains() == approx([(9 - 3) ** 2 / 2 - (9 - 1) ** 2 / 2, (-3 - 3) ** 2 / 2 - (-3 - 5) ** 2 / 2])
    assert found.statistics()["loses"] == 1


def test_groups_of_clients_give_what_each_client_gives_alone(run, monkeypatch):
    together = ft.personalise(run, steps=2)
    monkeypatch.setattr("fedtrue.runner.fine_tuning.MAX_LANES", 1)
    assert ft.personalise(run, steps=2).after["loss"] == approx(together.after["loss"])


def test_values_before_are_those_that_the_run_recorded_also_if_a_part_of_the_model_is_trained(tmp_path):
    generator = np.random.default_rng(0)
    examples = lambda: {"x": generator.normal(size=(5, 3)), "y": generator.integers(0, 2, 5)}
    clients = {name: examples() for name in MINIMA}
    init = lambda key: {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
    model = (init, lambda weights, x: x @ weights["w"] + weights["b"])
    task = ft.tasks.supervised(model, clients, test=clients, trainable=["b"])
    method = ft.methods.fedavg(0.5)
    recorded = ft.train(task, method, rounds=2, out=tmp_path / "run").clients["test"]
    found = ft.personalise(tmp_path / "run", task, method, steps=1)
    assert found.clients == list(recorded["client"])
    assert found.before["loss"] == approx(recorded["loss"], rel=1e-5)
    assert next(iter(found.metrics)) == "accuracy"  # higher is better before losses, as in tables of runs


def test_clients_without_names_match_only_if_both_data_sets_have_as_many():
    data = lambda count: ft.ClientData.from_clients([{"x": np.zeros(1)}] * count)
    assert matching_clients(data(2), data(2)).tolist() == [0, 1]
    assert matching_clients(data(3), data(2)).tolist() == [-1, -1]


def test_no_bar_of_the_histogram_has_clients_that_gain_and_clients_that_lose():
    edges = bin_edges(np.array([-0.31, 0.0, 2.7]), bins=12)
    assert 0.0 in edges and edges[0] <= -0.31 and edges[-1] >= 2.7


def test_errors_name_the_cure(run, tmp_path, capsys):
    def error(*arguments):
        assert main(["personalise", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    assert "fedtrue run TASK" in error(tmp_path)
    assert "below 1" in error(run, "--hold-out", "1.5")
    assert "steps must be an integer of at least 0" in error(run, "--steps", "-1")
    assert "give a .png, .pdf or .svg file" in error(run, "--steps", "0", "-o", "gains.txt")
    without = [
        "run",
        f"{run.parent}/my.py",
        "--set",
        "task_options.test=false",
        "--client-rate",
        "0.1",
        "--rounds",
        "1",
    ]
    assert main([*without, "--out", f"{tmp_path}/without", "--json"]) == 0
    assert "--hold-out 0.2" in error(tmp_path / "without")
    (tmp_path / "without" / "summary.json").unlink()
    assert "fedtrue resume" in error(tmp_path / "without")


def test_the_picture_is_drawn_where_asked(run, tmp_path):
    assert main(["personalise", str(run), "--steps", "1", "-o", f"{tmp_path}/gains.png", "--json"]) == 0
    assert (tmp_path / "gains.png").stat().st_size > 1000
