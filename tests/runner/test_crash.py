"""A run can be resumed after a SIGKILL at any moment, also during a write, and after a full disk."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from run_folders import FEW, Runs, left_by, lines_of, quadratic, small_disk

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.runner import checkpoint
from fedtrue.runner.records import METRICS, Appender, read_lines
from tests.compiled_programs import READ_ONLY

pytestmark = pytest.mark.usefixtures("quick_compilation")

# Trains into a folder; the N-th call of a function does half its work and then kills the process with SIGKILL.
DRIVER = """
import os, signal, sys
from contextlib import suppress
import numpy as np
import fedtrue as ft
from fedtrue.runner import records

folder, where, at, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def dying(function, half, counts=lambda *arguments: True):
    calls = 0
    def called(*arguments):
        nonlocal calls
        calls += counts(*arguments)
        if calls == at:
            half(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return called

def is_partial(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}").endswith(".part")

def half_a_file(descriptor):
    if is_partial(descriptor):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)

def half_the_lines(appender, lines):
    text = "".join(map(records.as_json, lines)).encode()
    appender._file.write(text[: len(text) // 2])

if where == "fsync":
    os.fsync = dying(os.fsync, half_a_file)
elif where == "partial file":
    os.fsync = dying(os.fsync, half_a_file, is_partial)
elif where == "append":
    records.Appender.append = dying(records.Appender.append, half_the_lines)
elif where in ("replace", "unlink"):
    setattr(os, where, dying(getattr(os, where), lambda *paths: None))

random = np.random.default_rng(0)
task = ft.tasks.quadratic(1 + random.random((5, 3)), random.normal(size=(5, 3)))
method = ft.fedopt(ft.client.adam(0.01), ft.server.adam(0.01), client_state="inherit")
say = lambda done, rounds, metrics: print(done, flush=True)
ft.train(task, method, rounds=2000, cohort=2, lanes=1, local_steps=2, out=folder, resume=True, checkpoint_every=every,
         progress=say)
"""
KILLS = ["fsync"] * 6 + ["append"] * 4 + ["replace"] * 4 + ["unlink"] * 2 + ["any moment"] * 4  # twenty
SELDOM = 1000  # rounds between checkpoints of runs that are not killed


def started(*arguments, **environment):
    """A child process."""
    command, environment = [sys.executable, *arguments], {**os.environ, **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def driven(folder, where="nowhere", at=0, every=SELDOM):
    environment = {} if where == "nowhere" else READ_ONLY  # a kill while JAX writes its cache would damage it
    return started("-c", DRIVER, str(folder), where, str(at), str(every), **environment)


def killed(process, delay):
    """Kills the process `delay` seconds after its first round."""
    assert process.stdout.readline().strip()
    time.sleep(delay)
    process.kill()


@pytest.mark.parametrize(
    "kills",
    [["append", "any moment", "partial file"], pytest.param(KILLS, marks=pytest.mark.slow)],
    ids=["three", "twenty"],
)
def test_a_run_killed_many_times_also_during_writes_ends_like_an_uninterrupted_one(kills, tmp_path):
    whole, folder, random = tmp_path / "whole", tmp_path / "killed", np.random.default_rng(1)
    reference = driven(whole)
    assert reference.communicate()[1] == ""
    partial_files = torn_lines = 0
    for where in random.permutation(kills):
        process = driven(folder, where, random.integers(1, 15), every=5)
        if where == "any moment":
            killed(process, random.uniform(0, 0.2))
        said = process.communicate(timeout=120)[1]
        assert process.returncode == -signal.SIGKILL, (where, said)
        complaints = []
        found = checkpoint.newest(folder / "checkpoints", complaints.append)
        lines = read_lines(folder / METRICS)
        assert complaints == []  # a kill never leaves a damaged checkpoint
        assert [line["round"] for line in lines] == list(range(len(lines)))
        assert (found.round if found else 0) <= len(lines)
        partial_files += len(list(folder.rglob("*.part")))
        torn_lines += not (folder / METRICS).read_bytes().endswith(b"\n")
    assert partial_files >= kills.count("partial file") + kills.count("fsync") // 2  # the kills happened during writes
    assert torn_lines >= 1
    final = driven(folder)
    assert final.communicate()[1] == ""
    assert left_by(folder) == left_by(whole)


# --- a full disk ------------------------------------------------------------------------------------------------------


def fill(disk, pages_left):
    """Fills the disk up to a few pages."""
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            ballast.truncate(ballast.tell() // 4096 * 4096 - 4096 * pages_left)


def test_lines_that_do_not_fit_on_the_disk_are_not_written_in_part(tmp_path):
    """`write` writes the part that fits and returns its length, without an error."""
    with small_disk(tmp_path / "disk", "64k") as disk:
        appender, written = Appender(disk / METRICS, 0), 0
        with pytest.raises(OSError, match=r"No space left on device.*metrics\.jsonl"):
            for written in range(10_000):
                appender.append([{"round": 2 * written, "loss": 0.5}, {"round": 2 * written + 1, "loss": 0.25}])
        assert [line["round"] for line in appender.lines] == list(range(2 * written))
        assert (disk / METRICS).read_bytes().endswith(b"\n")
        assert read_lines(disk / METRICS) == appender.lines


@pytest.fixture(scope="module")
def runs():
    return Runs(quadratic(), ft.fedopt(ft.client.adam(0.05), client_state="inherit"), **FEW)


@pytest.mark.parametrize("pages", [0, 1])
def test_a_disk_that_fills_up_keeps_the_previous_checkpoint_and_the_run_resumes_once_there_is_space(
    pages, runs, tmp_path
):
    """Without a free page the arrays cannot be written; with one they can, but their manifest cannot."""
    runs.into(tmp_path / "whole")
    with small_disk(tmp_path / "disk") as disk:
        with pytest.raises(OSError, match="No space left on device"):
            runs.into(disk / "run", after=lambda done: fill(disk, pages) if done == 5 else None)
        complaints = []
        assert checkpoint.newest(disk / "run" / "checkpoints", complaints.append).round == 4
        assert complaints == []
        assert not list(disk.rglob("*.part"))
        (disk / "ballast").unlink()
        runs.into(disk / "run")
        assert left_by(disk / "run") == left_by(tmp_path / "whole")


def test_a_full_disk_ends_a_process_with_one_line_that_names_the_cure_and_it_resumes_later(tmp_path, capsys):
    run = ["run", "quadratic", "--rounds", "2500", "--lanes", "1", "--checkpoint-every", "100"]
    assert main([*run, "--out", str(tmp_path / "whole")]) == 0
    with small_disk(tmp_path / "disk", "256k") as disk:  # a line has about 200 bytes, the run 2,500 lines
        process = started("-m", "fedtrue", *run, "--out", str(disk / "run"))
        said = process.communicate(timeout=120)[1].splitlines()[1:]  # the first line is about lanes
        assert (process.returncode, len(said)) == (2, 1)
        assert said[0].startswith(f"fedtrue: No space left on device, writing {disk / 'run'}")
        assert said[0].endswith(f": free some disk space, then resume with `fedtrue resume {disk / 'run'}`")
        reached = checkpoint.newest(disk / "run" / "checkpoints", pytest.fail).round
        assert 100 <= reached <= len(lines_of(disk / "run")) < 2500
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert main(["resume", str(disk / "run")]) == 0
        assert left_by(disk / "run") == left_by(tmp_path / "whole")


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path, capsys):
    with small_disk(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert main(["run", "quadratic", "--rounds", "1", "--out", str(disk / "run")]) == 2
        where = f"{disk / 'run'} is on a file system that cannot be written"
        assert capsys.readouterr().err == f"fedtrue: {where}: give another path\n"
