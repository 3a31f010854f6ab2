"""Lanes sharded over several devices give the same result, up to the order of floating-point sums."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp, numpy as np
import fedtrue as ft
from fedtrue.engine.simulation import Simulation

rng = np.random.default_rng(0)
clients = [{"x": rng.normal(size=(size, 3)).astype(np.float32)} for size in (1, 5, 9, 30, 2, 14, 7)]
loss = lambda params, example: jnp.sum((params["w"] - example["x"]) ** 4)
task = ft.tasks.from_arrays(clients, lambda key: {"w": jnp.zeros(3)}, loss, batch_size=4)
methods = {
    "inherit": ft.fedopt(ft.client.adam(0.02), client_state="inherit"),
    "median": ft.fedopt(ft.client.adam(0.02), compression="top_k(share=0.5)", aggregator="median"),
    "optimal": ft.methods.scaffold(ft.client.sgd(0.001), sampling="optimal(share=0.6)"),  # updates are held per place
}
method, out = methods[sys.argv[1]], []
for lanes in (5, 1):  # 5 lanes hold the whole cohort of 5 on one device; 1 lane per device uses both
    simulation = Simulation(task, method, cohort=5, lanes=lanes)
    state, infos = simulation.run(simulation.start(), 1)
    state, infos = simulation.run(state, 3)
    leaves = [np.asarray(leaf, float).ravel().tolist() for leaf in jax.tree.leaves(state[:2])]
    assert simulation._run.compilations == 1, "compiled more than once"
    out.append({"devices": simulation.lanes.devices, "state": leaves, "cohorts": infos.cohort.tolist()})
print(json.dumps(out))
"""


@pytest.mark.parametrize("method", ["inherit", "median", "optimal"])
def test_lanes_on_two_devices_give_the_weights_and_client_memory_of_one_device(method):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}  # two devices, on a machine with a GPU too
    command = [sys.executable, "-c", PROGRAM, method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    alone, together = json.loads(done.stdout)
    assert (alone["devices"], together["devices"]) == (1, 2)
    assert together["cohorts"] == alone["cohorts"]
    for one, other in zip(alone["state"], together["state"]):
        assert np.linalg.norm(np.subtract(one, other)) <= 1e-5 * max(np.linalg.norm(one), 1e-3)
