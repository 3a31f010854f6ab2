"""Small runs with folders, and their files without the parts that differ between equal runs: the seconds."""

import json
import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.engine.capacity import message_bytes
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner.callbacks.calls import Calls
from fedtrue.runner.callbacks.tensorboard import TensorBoard
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Journal
from fedtrue.runner.records import METRICS, MODEL, SUMMARY, read_lines
from fedtrue.runner.rounds import run_rounds
from fedtrue.runner.stop import Stop

ROUNDS, EVERY = 9, 4  # checkpoints after rounds 4, 8 and 9
FEW = {"cohort": 2, "lanes": 1, "local_steps": 3}  # one lane compiles fastest
RNG = np.random.default_rng(0)


def left_by(folder):
    """(weights as bytes, lines, summary) of a run that has ended, without the seconds."""
    summary = json.loads((folder / SUMMARY).read_text())
    summary["totals"].pop("seconds")
    return (folder / MODEL).read_bytes(), lines_of(folder), summary


def lines_of(folder):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(folder / METRICS)]


def quadratic():
    """float64, five clients."""
    return ft.tasks.quadratic(1.0 + 9.0 * RNG.random((5, 3)), RNG.normal(size=(5, 3)))


def stopping_after(done, signal_number=15):
    """(stop, after): a signal arrives while round `done` is reported."""
    stop = Stop()

    def after(now):
        stop.signal = signal_number if now >= done else 0

    return stop, after


class Runs:
    """A task with a method, compiled once for runs into any number of folders."""

    def __init__(self, task, method, **settings):
        self.task, self.method = task, method
        with float64(task.float64):
            self.simulation = Simulation(task, method, **settings)

    def into(self, folder, stop_after=None, after=lambda done: None, tensorboard=False, callbacks=()):
        folder.mkdir(exist_ok=True)
        stop, after = stopping_after(stop_after) if stop_after else (Stop(), after)
        schedule = HostSchedule(ROUNDS, evaluate_every=5, checkpoint_every=EVERY)
        with float64(self.task.float64):
            journal = Journal(folder, len(self.task.train), message_bytes(self.task, self.method))
            calls = [Calls([TensorBoard(folder / "tensorboard")] if tensorboard else callbacks)]
            return run_rounds(self.simulation, [journal], schedule, stop, after, lambda line: None, calls=calls)[0]


@contextmanager
def small_disk(path, size="1m"):
    """A separate small file system that can become full; the test is skipped if it cannot be mounted."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this needs the right to mount a small tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
