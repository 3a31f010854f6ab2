"""Methods with shared state, two phases or an optimizer of their own: command line, records, sweeps, diagnosis."""

import json

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.spec import option_table
from tests.cases import quick, samples_clients
from tests.methods.unequal_clients import task

METHODS = {  # flags, an option and two of its values
    "mime": (["--client", "adam", "--client-rate", "0.01"], "client.learning_rate", (0.01, 0.02)),
    "adaalter": (["--client-rate", "0.1"], "epsilon", (1.0, 0.5)),
    "sync_momentum": (["--client-rate", "0.01"], "beta", (0.9, 0.5)),
    "delta_sgd": (["--client-rate", "0.1"], "delta", (0.1, 1.0)),
    "feddane": (["--client-rate", "0.01", "--set", "mu=0.5"], "mu", (0.1, 1.0)),
    "fedpd": (["--client-rate", "0.01", "--set", "step_size=0.1"], "step_size", (0.1, 0.2)),
    "fedsplit": (["--client", "momentum", "--client-rate", "0.01", "--set", "step_size=0.1"], "step_size", (0.1, 0.2)),
    "fedadamw": (["--client-rate", "0.01"], "alpha", (0.5, 0.1)),
    "fadamgc": (["--client-rate", "0.01", "--correction", "joint"], "client.learning_rate", (0.01, 0.02)),
    "fedada2": (["--client-rate", "0.01", "--server-rate", "0.05"], "server_rate", (0.1, 0.05)),
    "fedlada": (["--client-rate", "0.01"], "alpha", (0.1, 0.5)),
}
TWO_PHASES = ("mime", "feddane")  # which diagnosis refuses
SWEEP = """
task = "quadratic"
rounds = 5
local_steps = [2, 5]
{settings}
[sweep.product]
{option} = {values}
"""
SETTINGS = {
    "mime": 'method = "mime"\nclient = { name = "momentum" }',
    "adaalter": 'method = "adaalter"\nclient_rate = 0.1',
    "sync_momentum": 'method = "sync_momentum"\nclient_rate = 0.01',
    "delta_sgd": 'method = "delta_sgd"',
    "feddane": 'method = "feddane"\nclient_rate = 0.01',
    "fedpd": 'method = "fedpd"\nclient_rate = 0.01',
    "fedsplit": 'method = "fedsplit"\nclient_rate = 0.01',
    "fedadamw": 'method = "fedadamw"\nclient_rate = 0.01',
    "fadamgc": 'method = "fadamgc"',
    "fedada2": 'method = "fedada2"\nclient_rate = 0.01',
    "fedlada": 'method = "fedlada"\nclient_rate = 0.01',
}


@pytest.mark.parametrize("name", quick(METHODS, "mime", "fedsplit", "fedadamw"))
def test_it_runs_resumes_bit_for_bit_and_is_diagnosed_if_it_has_one_phase(name, tmp_path, capsys):
    cohort = "1" if samples_clients(name) else "2"
    common = ["run", "quadratic", "--method", name, *METHODS[name][0], "--cohort", cohort, "--local-steps", "2,5"]
    common += ["--set", "task_options.noise=0.3", "--checkpoint-every", "4", "--json"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        assert main([*common, "--rounds", "9", "--out", str(folder)]) == 0
    for left in ("checkpoints/00000009.json", "checkpoints/00000009.safetensors", "summary.json"):
        (parts / left).unlink()
    assert main(["resume", str(parts)]) == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    capsys.readouterr()
    diagnosed = main(["diagnose", str(whole), "--orders", "2", "--json"])
    answer = capsys.readouterr()
    if name in TWO_PHASES:
        assert diagnosed == 2 and f"method '{name}' cannot be decomposed" in answer.err
    else:
        assert diagnosed == 0 and json.loads(answer.out)["sentence"].endswith(".")


@pytest.mark.parametrize("name", quick(METHODS, "adaalter", "fedsplit"))
def test_cells_of_a_sweep_are_the_runs_alone(name, tmp_path):
    _, option, values = METHODS[name]
    text = SWEEP.format(settings=SETTINGS[name], option=option, values=list(values))
    (tmp_path / "sweep.toml").write_text(text)
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    cells = [path.parent for path in sorted((tmp_path / "out").glob("*/config.toml"))]
    ends = []
    for cell in cells:
        alone = tmp_path / "alone" / cell.name
        assert main(["run", str(cell / "config.toml"), "--out", str(alone), "--json"]) == 0
        ours, theirs = (ft.load_run(path).params for path in (cell, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        ends.append(ours)
    assert len(ends) == 2 and not np.allclose(*ends)


@pytest.mark.parametrize("name", quick(METHODS, "feddane", "fedsplit", "fadamgc", "fedlada"))
def test_the_result_does_not_depend_on_the_number_of_lanes(name):
    takes = option_table(ft.methods.METHODS[name])
    method = ft.methods.METHODS[name](**({"client_rate": 0.01} if "client_rate" in takes else {"client": "adam(0.01)"}))
    settings = {"rounds": 3, "cohort": 3 if samples_clients(name) else 4, "local_steps": [2, 7, 4, 5]}
    run = lambda lanes: ft.train(task(noise=1.0), method, **settings, lanes=lanes).params
    np.testing.assert_allclose(run(1), run(2), rtol=1e-12)
