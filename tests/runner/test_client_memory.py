"""Client memory that does not fit on the device stays on the host: the same runs, resumed and swept too."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.engine import planning

HESSIANS = 1.0 + 9.0 * np.random.default_rng(0).random((7, 3))
MINIMA = np.random.default_rng(1).normal(size=(7, 3))
METHODS = {
    "scaffold": ft.methods.scaffold(ft.client.adagrad(0.05), correction="joint"),
    "inherit": ft.fedopt(ft.client.adam(0.05), client_state="inherit"),
}
ARGUMENTS = {"cohort": 3, "local_steps": 2, "checkpoint_every": 4}
TWO_ROUNDS = 2 * 3 * 12  # bytes: 3 clients with 3 numbers each under scaffold, 7 clients do not fit


@pytest.fixture
def on_the_host(monkeypatch):
    """A device with no room for any client's memory, and a buffer of two rounds."""
    monkeypatch.setattr(planning, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(planning, "WINDOW_BYTES", TWO_ROUNDS)


def task():
    return ft.tasks.quadratic(HESSIANS, MINIMA, noise=0.5)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_with_its_memory_on_the_host_resumes_bit_for_bit(name, tmp_path, on_the_host):
    method = METHODS[name]
    simulation = ft.Simulation(task(), method, cohort=3, local_steps=2)
    assert simulation.plan.memory_on_host and simulation.rounds_per_dispatch <= 2
    whole = ft.train(task(), method, rounds=9, **ARGUMENTS)
    ft.train(task(), method, rounds=6, out=tmp_path / "run", **ARGUMENTS)
    parts = ft.train(task(), method, rounds=9, out=tmp_path / "run", resume=True, **ARGUMENTS)
    np.testing.assert_array_equal(parts.params, whole.params)


@pytest.mark.parametrize("window_bytes", [TWO_ROUNDS, 1000])  # 1000: the rows of all clients
@pytest.mark.parametrize("name", METHODS)
def test_memory_on_the_host_and_on_the_device_give_the_same_bits(name, window_bytes, monkeypatch):
    on_device = ft.train(task(), METHODS[name], rounds=9, **ARGUMENTS).params
    monkeypatch.setattr(planning, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(planning, "WINDOW_BYTES", window_bytes)
    np.testing.assert_array_equal(ft.train(task(), METHODS[name], rounds=9, **ARGUMENTS).params, on_device)


SWEEP = """
task = "quadratic"
rounds = 6
cohort = 1
local_steps = [2, 5]
method = "scaffold"
[sweep.product]
client_rate = [0.01, 0.02, 0.03]
"""


def test_cells_that_train_together_keep_their_memories_apart_on_the_host(tmp_path, on_the_host):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    for cell in sorted(path for path in (tmp_path / "out").iterdir() if path.is_dir()):
        assert main(["run", str(cell / "config.toml"), "--out", str(tmp_path / cell.name), "--json"]) == 0
        np.testing.assert_allclose(ft.load_run(cell).params, ft.load_run(tmp_path / cell.name).params, rtol=1e-12)


def test_a_client_that_never_took_part_has_its_first_memory_and_the_store_grows_with_those_who_did():
    method = METHODS["inherit"]
    simulation = ft.Simulation(task(), method, cohort=1, local_steps=2, memory_on_device=False)
    state = simulation.start()
    first = simulation.on_host(state, np.arange(7)).memory
    state, info = simulation.round(state)
    seen = int(info.cohort[0])
    after = simulation.on_host(state, np.arange(7)).memory
    v, v0 = (memory[0]["own"]["optimizer"]["v"] for memory in (after, first))
    assert (v[seen] != v0[seen]).any()
    others = np.setdiff1d(np.arange(7), [seen])
    np.testing.assert_array_equal(v[others], v0[others])
    assert list(state.memory.rows) == [seen]  # one row is kept
