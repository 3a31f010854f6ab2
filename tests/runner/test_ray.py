"""A sweep on a Ray cluster of two local workers, or a fake of one, gives the same results as without Ray."""

import os
import signal
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy

from fedtrue.cli import main
from fedtrue.runner.records import read_lines
from tests.compiled_programs import READ_ONLY

SWEEP = """
task = "quadratic"
rounds = {rounds}
local_steps = [2, 5]
checkpoint_every = 500
[sweep.product]
correction = ["none", "joint"]
client.learning_rate = [0.001, 0.002]
"""


def weights(folder):
    paths = sorted(folder.glob("*/model.safetensors"))
    return {path.parent.name: safetensors.numpy.load_file(path)["params"] for path in paths}


def swept(folder, rounds, *words):
    (folder / "s.toml").write_text(SWEEP.format(rounds=rounds))
    out = folder / ("ray" if words else "here")
    assert main(["sweep", str(folder / "s.toml"), "--out", str(out), "--json", *words]) == 0
    return weights(out)


def kill_a_busy_worker(out, killed, ended):
    """The process that writes the first cell with a checkpoint; its folder's lock names it."""
    while not ended.wait(0.02):
        for lock in out.glob("*/.lock.pid"):
            begun = list(lock.parent.glob("checkpoints/*.json")) and not (lock.parent / "summary.json").exists()
            if begun and (holder := lock.read_text().strip()):
                os.kill(int(holder), signal.SIGKILL)
                killed.append(lock.parent)
                return


def assert_ends_agree(on_ray, here):
    assert list(on_ray) == list(here) and len(here) == 4
    for name in here:
        np.testing.assert_allclose(on_ray[name], here[name], rtol=1e-12)


class StandInForRay:
    """The part of Ray's API that sweeps use, with two workers; each group is trained twice, as after a worker died."""

    def __init__(self):
        self.shares, self.running = [], False

    def is_initialized(self):
        return self.running

    def init(self, **_):
        self.running = True

    def shutdown(self):
        self.running = False

    def cluster_resources(self):
        return {"CPU": 2.0}

    def remote(self, **_):
        return lambda function: SimpleNamespace(remote=lambda *arguments: self.submit(function, arguments))

    def submit(self, function, arguments):
        self.shares.append((function, arguments))
        return len(self.shares) - 1

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        function, arguments = self.shares[reference]
        function(*arguments)
        function(*arguments)


@pytest.mark.slow
def test_cells_on_workers_give_the_results_of_a_local_sweep_even_if_a_group_is_trained_twice(tmp_path, monkeypatch):
    ray = StandInForRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    on_ray = swept(tmp_path, 1_000, "--on", "ray")
    assert len(ray.shares) == 2 and not ray.running  # four cells, two workers
    assert_ends_agree(on_ray, swept(tmp_path, 1_000))


@pytest.mark.slow  # starts a Ray cluster
def test_cells_on_a_cluster_give_the_results_of_a_local_sweep_even_if_a_worker_is_killed(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'fedtrue[ray]'")
    for name, value in READ_ONLY.items():
        monkeypatch.setenv(name, value)
    killed, ended = [], threading.Event()
    killer = threading.Thread(target=kill_a_busy_worker, args=(tmp_path / "ray", killed, ended))
    killer.start()
    on_ray = swept(tmp_path, 20_000, "--on", "ray")
    ended.set()
    killer.join()
    assert len(killed) == 1 and len(read_lines(killed[0] / "metrics.jsonl")) == 20_000
    assert_ends_agree(on_ray, swept(tmp_path, 20_000))
