"""The real thing on loopback: a SuperLink and SuperNodes as processes, TLS, registered keys. Minutes: all are slow."""

import json

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.flower.project import new_project
from fedtrue.runner.checkpoint import arrays_from
from fedtrue.runner.records import read_lines
from tests.flower.federations import noisy_task, weights
from tests.flower.processes import RealFederation, kill, needs_tools

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.slow,
    pytest.mark.skipif(bool(needs_tools), reason=f"needs {' and '.join(needs_tools)}"),
]

PYPROJECT = """
[project]
name = "app"
version = "1.0.0"
description = "a test"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "test"
[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"
[tool.flwr.app.config]
rounds = 3
timeout = 60.0
out = ""
"""
SERVER = """
from flwr.serverapp import ServerApp
import fedtrue as ft
from task import METHOD, TASK
app = ServerApp()
@app.main()
def main(grid, context):
    config = context.run_config
    strategy = ft.flower.Strategy(METHOD, TASK, out=config["out"])
    strategy.start(grid, num_rounds=config["rounds"], timeout=config["timeout"])
"""
SCAFFOLD_TASK = """
import fedtrue as ft
from tests.flower.federations import noisy_task
METHOD, TASK = ft.methods.scaffold(ft.client.sgd(0.01)), noisy_task(cohort=2)
"""
SCAFFOLD_CLIENT = """
import fedtrue as ft
from task import METHOD, TASK
app = ft.flower.client_app(TASK, METHOD, memory="{memory}")
"""
MIXED_TASK = """
import fedtrue as ft
from tests.flower.federations import noisy_task
METHOD = ft.fedopt(ft.client.adam(0.05, epsilon_after_correction=True), correction="joint")
TASK = noisy_task(batch_size=8, local_epochs=3)
"""
MIXED_CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
import fedtrue as ft
from task import METHOD, TASK
from tests.flower.federations import tampered
from tests.flower.test_torch_clients import torch_app
def send_nan(content):
    content["contribution.update"] = ArrayRecord({"w": Array(np.full(3, np.nan, np.float32))})
in_jax, in_torch = ft.flower.client_app(TASK, METHOD), torch_app(TASK, 0.05)
bad = tampered(in_jax, send_nan, lambda message: message.content["config"]["round"] == 1)
def handle(message, context):
    return (in_jax, in_torch, bad)[context.node_config["partition-id"]](message, context)
app = ClientApp()
app.query()(handle)
app.train()(handle)
"""


def write_app(folder, **files):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    for name, text in {"server_app": SERVER, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with RealFederation(tmp_path_factory.mktemp("flower")) as running:
        for client in range(3):
            running.start_node(client)
        yield running


def lines(run):
    return read_lines(run / "metrics.jsonl")


def test_a_server_killed_mid_run_and_started_again_ends_with_the_weights_of_the_simulation(federation, tmp_path):
    client = SCAFFOLD_CLIENT.format(memory=str(tmp_path / "nodes"))
    app = write_app(tmp_path / "app", task=SCAFFOLD_TASK, client_app=client)
    run = tmp_path / "run"
    federation.run(app, out=run)
    federation.wait_until(lambda: len(lines(run)) >= 1, "a round")
    kill(federation.server_process())
    assert not (run / "summary.json").exists()
    federation.run(app, out=run)
    federation.wait_until((run / "summary.json").exists, "the resumed run ends")
    simulated = ft.train(noisy_task(cohort=2), ft.methods.scaffold(ft.client.sgd(0.01)), rounds=3)
    np.testing.assert_allclose(ft.load_weights(run)["w"], weights(simulated.params), rtol=1e-5, atol=1e-5)
    assert [line["round"] for line in lines(run)] == [0, 1, 2]
    assert json.loads((run / "summary.json").read_text())["totals"]["refused"] == 0


def test_a_node_without_a_registered_key_and_one_in_plain_text_are_refused(federation):
    federation.start_node(3, register=False)
    federation.start_node(4, tls=False)
    for name, says in (("node-3", "Failed to activate SuperNode"), ("node-4", "Failed to initialize the connection")):
        process = federation.processes[name]
        federation.wait_until(lambda process=process: process.poll() is not None, f"{name} ends")
        assert says in federation.log(name) and "SuperNode ID" not in federation.log(name)
    assert "No SuperNode found with the given public key" in federation.log("superlink")


def test_jax_and_torch_clients_train_one_model_and_go_on_without_a_killed_node_and_a_nan(federation, tmp_path):
    app = write_app(tmp_path / "app", task=MIXED_TASK, client_app=MIXED_CLIENT)
    run = tmp_path / "run"
    federation.run(app, out=run, rounds=2, timeout=30.0)
    federation.wait_until(lambda: len(lines(run)) >= 1, "a round")
    federation.kill("node-0")
    federation.wait_until((run / "summary.json").exists, "the run ends")
    method = ft.fedopt(ft.client.adam(0.05, epsilon_after_correction=True), correction="joint")
    simulated = ft.train(noisy_task(batch_size=8, local_epochs=3), method, rounds=1)
    after_first_round = arrays_from((run / "checkpoints" / "00000001.safetensors").read_bytes())["server/params/w"]
    np.testing.assert_allclose(after_first_round, weights(simulated.params), rtol=1e-5, atol=1e-5)
    counts = [{name: line[name] for name in ("clients", "missing", "dropped")} for line in lines(run)]
    assert counts == [{"clients": 3, "missing": 0, "dropped": 0}, {"clients": 1, "missing": 1, "dropped": 1}]


def test_a_new_app_runs_in_flowers_simulation(tmp_path):
    pytest.importorskip("ray")
    new_project(tmp_path / "app", "torch")
    run = tmp_path / "run"
    with RealFederation(tmp_path, simulation=True) as simulation:
        simulation.run(tmp_path / "app", out=run, rounds=2, more=("--federation-config", "num-supernodes=3"))
        simulation.wait_until((run / "summary.json").exists, "the run ends")
    assert [line["clients"] for line in lines(run)] == [3, 3]
