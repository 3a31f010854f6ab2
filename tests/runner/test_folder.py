"""A run folder is written by one process at a time, on every platform."""

import errno
import os
import subprocess
import sys

import pytest
from filelock import FileLock

from fedtrue.runner.folder import RunLock, is_run_folder

TWO_ROUNDS = """
import sys
sys.modules["fcntl"] = None  # as on Windows
import fedtrue as ft
task = ft.tasks.quadratic(hessians=[[1.0], [2.0]], minima=[[0.0], [3.0]])
ft.train(task, ft.fedopt(ft.client.sgd(0.1)), rounds=2, local_steps=1, out=sys.argv[1])
"""


def test_two_rounds_into_a_folder_need_no_fcntl(tmp_path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", TWO_ROUNDS, str(tmp_path / "run")], check=True)
    assert is_run_folder(tmp_path / "run")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_locked_folder_is_refused_every_time_and_the_process_that_holds_it_is_named(tmp_path):
    message = f"is being written by process {os.getpid()}: wait for it, or stop it"
    with RunLock(tmp_path):
        for _ in range(2):  # a refused process does not release the lock of the other
            with pytest.raises(ValueError, match=message), RunLock(tmp_path):
                pytest.fail("locked twice")


def test_a_released_folder_can_be_locked_again_and_names_no_process(tmp_path):
    with RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".lock.pid"]
    assert not (tmp_path / ".lock.pid").exists()


def test_a_killed_process_leaves_no_lock(tmp_path):
    hold = "import sys, time; from pathlib import Path; from fedtrue.runner.folder import RunLock\n"
    hold += "with RunLock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(ValueError, match=f"is being written by process {process.pid}:"), RunLock(tmp_path):
        pytest.fail("locked twice")
    process.kill()
    process.communicate()
    with RunLock(tmp_path):
        assert (tmp_path / ".lock.pid").read_text() == str(os.getpid())


def test_a_full_disk_before_the_first_round_is_reported_with_the_cure(tmp_path, monkeypatch):
    def no_space(lock):
        raise OSError(errno.ENOSPC, "No space left on device", lock.lock_file)

    monkeypatch.setattr(FileLock, "acquire", no_space)
    with (
        pytest.raises(OSError, match=r"No space left on device, writing .*\.lock: free some disk space$"),
        RunLock(tmp_path),
    ):
        pytest.fail("locked")
