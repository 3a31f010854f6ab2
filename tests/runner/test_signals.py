"""Ctrl-C and SIGTERM end a run after the current dispatch, with a checkpoint; one process at a time writes a folder."""

import os
import signal
import subprocess
import sys
import time

import pytest
from run_folders import left_by, lines_of

from fedtrue.cli import main
from fedtrue.runner import checkpoint
from fedtrue.runner.folder import RunLock
from fedtrue.runner.stop import Stop
from tests.compiled_programs import READ_ONLY

pytestmark = pytest.mark.usefixtures("quick_compilation")
RUN = ["run", "quadratic", "--client", "adam", "--client-state", "inherit", "--lanes", "1", "--rounds", "6000"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, quick_compilation):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main([*RUN, "--out", str(folder)]) == 0
    return folder


def running(folder):
    """A process that has trained some of many rounds and saves after every third."""
    command = [sys.executable, "-m", "fedtrue", *RUN, "--checkpoint-every", "3", "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **READ_ONLY})
    while not (folder / "checkpoints").exists() and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None
    return process


def resumed(folder):
    """Resumes to the end, saving less often, which must not change the result."""
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("checkpoint_every = 3", 'checkpoint_every = "60s"'))
    return main(["resume", str(folder)])


@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_finishes_the_dispatch_saves_and_exits_with_its_code_and_the_run_resumes(
    number, code, whole, tmp_path
):
    process = running(tmp_path / "run")
    process.send_signal(number)
    said = process.communicate(timeout=60)[1].splitlines()[-1]
    done = len(lines_of(tmp_path / "run"))
    assert process.returncode == code
    assert said == f"fedtrue: stopped after round {done}: resume with `fedtrue resume {tmp_path / 'run'}`"
    assert checkpoint.newest(tmp_path / "run" / "checkpoints", pytest.fail).round == done < 6000
    assert resumed(tmp_path / "run") == 0
    assert left_by(tmp_path / "run") == left_by(whole)


def test_a_second_process_on_a_run_folder_is_refused_and_the_first_is_named(tmp_path, capsys):
    process = running(tmp_path / "run")
    try:
        for second in (["resume", str(tmp_path / "run")], [*RUN, "--out", str(tmp_path / "run")]):
            capsys.readouterr()
            assert main(second) == 2
            assert f"is being written by process {process.pid}: wait for it, or stop it" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate()
    with RunLock(tmp_path / "run"):
        pass  # a killed process holds no lock


def test_a_refused_process_does_not_change_the_folder_of_the_other(tmp_path, capsys):
    """Two processes that start at the same time: the one with the lock has not yet written its settings."""
    with RunLock(tmp_path / "run"):
        assert main([*RUN, "--out", str(tmp_path / "run")]) == 2
        assert f"is being written by process {os.getpid()}" in capsys.readouterr().err
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", ".lock.pid"]


def test_a_second_ctrl_c_ends_immediately_and_the_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Stop() as stop:
        assert stop.signal == 0
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
