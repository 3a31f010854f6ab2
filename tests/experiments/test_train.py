"""`experiments/train.py`: sweeps side by side for a limited time, and on from there."""

import importlib
import sys
from pathlib import Path

import pytest

from fedtrue.runner.records import METRICS, find_runs, read_lines, read_run

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
script = importlib.import_module("train")
SWEEP = 'task = "quadratic"\nrounds = {}\ncheckpoint_every = 1\n[sweep.product]\nseed = [0, 1]\n'
STOPPED = 143  # by SIGTERM, after a checkpoint


@pytest.mark.slow
def test_it_stops_in_time_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    for name, rounds in (("short", 3), ("long", 1_000_000), ("later", 3)):
        Path(name).mkdir()
        Path(name, "two.toml").write_text(SWEEP.format(rounds))
    jobs = ["long/two.toml:*seed=0", "short/two.toml", "long/two.toml:*seed=1", "later/two.toml"]
    assert script.train(jobs, runs, processes=2, seconds=25) == {jobs[0]: STOPPED, jobs[1]: 0, jobs[2]: STOPPED}
    ended = [run for run in map(read_run, find_runs([runs])) if run.summary is not None]
    assert [run.rounds_done for run in ended] == [3, 3]  # both seeds of the short sweep
    done = lambda: len(read_lines(next(script.folder_of("long/two.toml", runs).glob("*seed=0")) / METRICS))
    before = done()
    assert script.train(jobs[:1], runs, processes=2, seconds=10) == {jobs[0]: STOPPED}
    assert done() > before > 0


def test_sweeps_of_one_name_in_two_folders_have_runs_of_their_own():
    runs = Path("runs")
    assert script.folder_of("mnist/compare.toml", runs) != script.folder_of("quadratic/compare.toml", runs)
    assert script.command("mnist/compare.toml:*seed=0", runs)[-3:] == ["*seed=0", "--out", "runs/mnist-compare"]
