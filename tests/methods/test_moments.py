"""The moments method and the options of corrections, everywhere: command line, records, sweeps, bytes, diagnosis."""

import json

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.diagnosis.measure import Diagnosis
from fedtrue.diagnosis.verdict import CAUSES
from fedtrue.runner.sweep.run import prepare
from tests.cases import quick

MOMENTS = ["--method", "moments", "--client", "adagrad", "--client-rate", "0.02"]
OPTIONS = {
    "moments": [*MOMENTS, "--server-rate", "0.05"],
    "table": [*MOMENTS, "--set", "table=true", "--set", "report=intercept"],
    "averaged joint": ["--client", "adam", "--client-rate", "0.01", "--correction", "joint(beta=0.9)"],
    "lagged": ["--client", "adam", "--client-rate", "0.01", "--correction", "moments(lagged=true)"],
    "cumulative": ["--client", "adam", "--client-rate", "0.01", "--correction", "moments(cumulative=true)"],
}


@pytest.mark.parametrize("name", quick(OPTIONS, "table", "averaged joint"))
def test_it_runs_resumes_bit_for_bit_and_is_diagnosed_from_the_command_line(name, tmp_path, capsys):
    common = ["run", "quadratic", *OPTIONS[name], "--cohort", "1", "--local-steps", "2,5"]
    common += ["--set", "task_options.noise=0.3", "--checkpoint-every", "4", "--json"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        assert main([*common, "--rounds", "9", "--out", str(folder)]) == 0
    for left in ("checkpoints/00000009.json", "checkpoints/00000009.safetensors", "summary.json"):
        (parts / left).unlink()
    assert main(["resume", str(parts)]) == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    capsys.readouterr()
    assert main(["diagnose", str(whole), "--orders", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"].endswith(".")


def bytes_up(correction):
    """Of one client with 4,096 weights."""
    task = ft.tasks.from_arrays(
        [{"x": np.zeros((4, 1), np.float32)}] * 2,
        init=lambda key: np.zeros(4096, np.float32),
        loss=lambda params, example: ((params - example["x"]) ** 2).sum(),
        batch_size=2,
    )
    method = ft.fedopt(ft.client.adagrad(0.1), correction=correction)
    result = ft.train(task, method, rounds=1, cohort=1)
    return result.history["bytes_up"][0]


def test_moments_cost_what_joint_costs_and_one_number():
    array = bytes_up("none")
    assert array == 4 * 4096
    assert bytes_up("joint") == 2 * array
    assert bytes_up("moments") == 2 * array + 4  # τ_i
    assert bytes_up({"name": "local", "report": "mean_gradient"}) == array
    assert bytes_up({"name": "moments", "table": True}) == 2 * array + 4  # the change in place of the report


SWEEP = """
task = "quadratic"
rounds = 5
local_steps = [2, 5]
client = { name = "adagrad", learning_rate = 0.05 }
server = { name = "sgd", learning_rate = 0.1 }
[sweep.product]
correction = [
  "none",
  "joint",
  { name = "joint", beta = 0.5 },
  { name = "local", report = "intercept" },
  "moments",
  { name = "moments", lagged = true, beta = 0.5 },
  { name = "moments", table = true },
]
"""


@pytest.mark.slow
def test_cells_with_different_corrections_are_the_runs_alone(tmp_path):
    """All without client memory share a program; the one with a table has its own."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    cells, groups = prepare(tmp_path / "sweep.toml", tmp_path / "out")
    assert [len(group) for _, group in groups] == [6, 1]
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    for cell in cells:
        alone = tmp_path / "alone" / cell.name
        assert main(["run", str(tmp_path / "out" / cell.name / "config.toml"), "--out", str(alone), "--json"]) == 0
        ours, theirs = (ft.load_run(path).params for path in (tmp_path / "out" / cell.name, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_default_report_is_not_recorded_and_another_is():
    assert ft.fedopt(ft.client.sgd(0.1), correction={"name": "joint", "report": "update"}).spec["correction"] == "joint"
    spec = ft.fedopt(ft.client.sgd(0.1), correction="moments(report=intercept)").spec["correction"]
    assert spec == {"name": "moments", "report": "intercept"}


def test_a_server_rate_of_1_is_said_to_be_too_large_where_the_correction_makes_steps_of_its_length(recwarn):
    client = ft.client.adam(0.1)
    ft.fedopt(client, ft.server.sgd(0.01), correction="moments"), ft.fedopt(client), ft.methods.moments(client)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="begin with a server rate of 0.003"):
        ft.fedopt(client, correction="moments")


def test_a_wrong_report_is_refused_with_the_nearest_name(capsys):
    command = ["run", "quadratic", "--client", "sgd", "--client-rate", "0.1", "--correction", "local(report=mean)"]
    assert main(command) == 2
    assert "mean_gradient" in capsys.readouterr().err


def diagnosed(correction, tmp_path, noise=0.0, steps=(2, 20, 8), rounds=50):
    task = ft.tasks.quadratic(hessians=[[1.0], [1.0], [2.0]], minima=[[6.0], [-1.0], [-2.0]], noise=noise)
    method = ft.fedopt(ft.client.adagrad(1e-3), ft.server.sgd(0.01), correction=correction)
    ft.train(task, method, rounds=rounds, cohort=1, local_steps=list(steps), out=tmp_path)
    return ft.diagnose(tmp_path, orders=4000 if noise else 2).diagnosis.numbers


@pytest.mark.slow
def test_diagnosis_finds_no_bias_in_mean_gradients_under_noise_and_one_in_joint(tmp_path):
    seen = diagnosed({"name": "local", "report": "mean_gradient"}, tmp_path / "mean", noise=3.0)
    moved = diagnosed("local", tmp_path / "local", noise=3.0)
    assert seen.pieces["noise"].norm < 4 * seen.pieces["noise"].standard_error
    assert moved.pieces["noise"].norm > 5 * moved.pieces["noise"].standard_error
    assert seen.pieces["bias"].norm < 1e-9 * seen.clients_scale


@pytest.mark.slow
def test_diagnosis_sees_the_ratio_bias_of_small_cohorts_and_that_earlier_rounds_remove_it(tmp_path):
    now, earlier = (diagnosed(c, tmp_path / c) for c in ("moments", "moments(lagged=true)"))
    assert now.pieces["cohorts"].norm > 0.01 * now.clients_scale
    assert earlier.pieces["cohorts"].norm < 1e-9 * earlier.clients_scale


@pytest.mark.slow
def test_diagnosis_sees_that_a_table_takes_the_scatter_out_of_small_cohorts(tmp_path):
    without, with_table = (
        diagnosed({"name": "local", "report": "mean_gradient", "table": table}, tmp_path / str(table), rounds=400)
        for table in (False, True)
    )
    assert with_table.cohort_scatter < 0.05 * without.cohort_scatter


@pytest.mark.parametrize("correction", ["moments", {"name": "local", "report": "intercept", "table": True}], ids=str)
@pytest.mark.parametrize("name", ["fedprox", "scaffold", "mimelite"])
def test_methods_with_other_local_steps_take_reports_of_gradients_too(name, correction):
    """The path changes, the report estimates the same gradient: all end near the minimiser, with unequal steps."""
    task = ft.tasks.quadratic()
    client = ft.client.momentum(1e-4) if name == "mimelite" else ft.client.sgd(1e-4)
    server = ft.server.sgd(0.01) if correction == "moments" else ft.server.sgd(500.0)
    method = ft.methods.METHODS[name](client, server=server, correction=correction)
    result = ft.train(task, method, rounds=600, local_steps=[2, 7])
    assert np.linalg.norm(result.params - task.minimiser) < 0.03


CURES = [
    ("cohorts", "joint", "joint(beta=0.99)"),
    ("cohorts", "joint(beta=0.99)", "use a --cohort of 2 or more"),
    ("cohorts", "moments", "lagged=true"),
    ("cohorts", "moments(lagged=true)", "use a --cohort of 2 or more"),
    ("cohorts", "moments(cumulative=true)", "use a --cohort of 2 or more"),
    ("noise", "joint", "local(report=mean_gradient)"),
    ("noise", "moments", "lagged=true"),
    ("noise", "none", "client.lagged=true"),
]


@pytest.mark.parametrize("cause, correction, cure", CURES)
def test_diagnosis_names_the_correction_that_removes_what_it_finds(cause, correction, cure):
    method = ft.fedopt(ft.client.adagrad(1e-3), correction=correction)
    found = Diagnosis("quadratic", method.spec, "uniform", 1, 0, 3, 1, 2, np.ones(3), numbers=None)
    assert cure in CAUSES[cause](found)[1]


def test_diagnosis_knows_the_named_method_too():
    found = Diagnosis(
        "quadratic", ft.methods.moments(ft.client.sgd(0.1)).spec, "uniform", 1, 0, 3, 1, 2, np.ones(3), None
    )
    assert "cumulative=true" in CAUSES["cohorts"](found)[1]
