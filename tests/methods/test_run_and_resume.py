"""Methods with shared state, two phases or an optimizer of their own: command line, records, sweeps, diagnosis."""

import json

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from tests.cases import quick

METHODS = {  # flags, an option and two of its values
    "mime": (["--client", "adam", "--client-rate", "0.01"], "client.learning_rate", (0.01, 0.02)),
    "adaalter": (["--client-rate", "0.1"], "epsilon", (1.0, 0.5)),
    "sync_momentum": (["--client-rate", "0.01"], "beta", (0.9, 0.5)),
    "delta_sgd": (["--client-rate", "0.1"], "delta", (0.1, 1.0)),
}
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
}


@pytest.mark.parametrize("name", quick(METHODS, "mime"))
def test_it_runs_resumes_bit_for_bit_and_is_diagnosed_if_it_has_one_phase(name, tmp_path, capsys):
    common = ["run", "quadratic", "--method", name, *METHODS[name][0], "--cohort", "1", "--local-steps", "2,5"]
    common += ["--set", "task_options.noise=0.3", "--checkpoint-every", "4", "--json"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        assert main([*common, "--rounds", "9", "--out", str(folder)]) == 0
    for left in ("checkpoints/00000009.json", "checkpoints/00000009.safetensors", "summary.json"):
        (parts / left).unlink()
    assert main(["resume", str(parts)]) == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    capsys.readouterr()
    if name == "mime":
        return  # refused, see test_mime.py
    assert main(["diagnose", str(whole), "--orders", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"].endswith(".")


@pytest.mark.parametrize("name", quick(METHODS, "adaalter"))
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
