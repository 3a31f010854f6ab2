"""`fedtrue deploy new`: what it writes runs as it is."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from flwr.common.config import validate_config

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.runner.toml import read

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
FILES = {"pyproject.toml", "README.md", "task.py", "client_app.py", "server_app.py"}


@pytest.fixture(params=["jax", "torch"])
def project(request, tmp_path, monkeypatch):
    """A new app, whose modules can be imported; the folder is called `My App`."""
    pytest.importorskip(request.param)
    assert main(["deploy", "new", str(tmp_path / "My App"), "--framework", request.param]) == 0
    monkeypatch.syspath_prepend(tmp_path / "My App")
    yield tmp_path / "My App"
    for name in ("task", "client_app", "server_app"):
        sys.modules.pop(name, None)


def test_the_app_trains_as_it_is_and_resumes(project, tmp_path):
    assert {path.name for path in project.iterdir() if path.is_file()} == FILES
    config = read(project / "pyproject.toml", "an app")
    assert config["project"]["name"] == "my-app"
    valid, errors, warnings = validate_config(config)
    assert valid and not errors and not warnings
    clients, server = (importlib.import_module(name).app for name in ("client_app", "server_app"))
    settings = {**config["tool"]["flwr"]["app"]["config"], "out": str(tmp_path / "run")}
    for rounds in (2, 3):
        grid = ft.flower.LocalGrid(clients, nodes=3)
        server(grid, Context(0, 0, {}, RecordDict(), {**settings, "rounds": rounds}))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rounds"] == 3 and summary["totals"]["refused"] == 0
    assert summary["final"]["test"]["loss"] < 3.5  # of zero weights: the mean of |slopes|², about 3.5


def test_a_folder_that_is_not_empty_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("")
    assert main(["deploy", "new", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"fedtrue: {tmp_path} already exists and is not an empty folder: give a new one\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_the_code_of_the_page_runs_as_written(capsys):
    program = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(program, str(PAGE), "exec"), {})
    assert "Result(finished after 3 rounds" in capsys.readouterr().out


def test_the_pages_table_is_the_kept_measurement():
    kept = json.loads((PAGE.parents[1] / "benchmarks/results/deployment.json").read_text())["methods"]
    rows = re.findall(
        r"^\| (.+?) \| \$(.+?)\\cdot 10\^\{(-\d+)\}\$ \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.M
    )
    said = {
        name: (f"{mantissa}e{int(power):03d}", weight, up, down) for name, mantissa, power, weight, up, down in rows
    }
    shown = lambda row: (
        f"{row['largest_difference']:.1e}",
        f"{row['largest_weight']:.2f}",
        f"{row['bytes_up']:,.0f}",
        f"{row['bytes_down']:,.0f}",
    )
    assert said == {name: shown(row) for name, row in kept.items()} and len(said) == 8
