"""docs/own_data.md does what it says: its programs and commands run, and errors are the ones it shows."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from fedtrue.cli import main
from fedtrue.data import locations

PAGE = (Path(__file__).parents[2] / "docs" / "own_data.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    line for language, text in BLOCKS if not language for line in text.splitlines() if line.startswith("fedtrue ")
]
REFUSED = re.findall(r"^\$ (fedtrue .*)\n(fedtrue: .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locations, "_user_folder", lambda: tmp_path / "user")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed_by(programs):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n".join(programs), "own_data.md", "exec"), {})
    return printed.getvalue()


def test_the_programs_of_the_page_run_from_top_to_bottom(folder):
    printed = printed_by(PROGRAMS).splitlines()
    assert printed[0] == "12 600 clinic_00 ['ill', 'unsure', 'well']"
    assert printed[1] == "(60, 28, 28, 1)"
    assert float(printed[2]) < 0.7  # log 3 = 1.1 before training
    assert printed[3] == "['a', 'barks', 'dog', 'it', 'runs'] ['dog']"
    assert printed[4].count(" ") >= 9


def test_the_commands_of_the_page_run_and_refuse_what_it_says(folder, capsys):
    printed_by(PROGRAMS[:1])
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        assert main(shlex.split(command)[1:]) == 0, command
    assert (folder / "skewed.png").exists()
    capsys.readouterr()
    assert len(REFUSED) == 4
    for command, error in REFUSED:
        assert main(shlex.split(command)[1:]) == 2
        assert capsys.readouterr().err.strip() == error
