"""README and the examples do what they say."""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fedtrue.cli import main
from tests.laws.test_bias import TABLE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = ["own_task", "own_method", "pseudocode_twin"]
PAGES = ["own_model", "own_loop"]  # their code runs as written, from the first block to the last
SNIPPET = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]


def printed_by(program):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "a document's program", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


@cache
def printed_by_example(name):
    return printed_by((ROOT / "examples" / f"{name}.py").read_text())


def test_the_readmes_snippet_runs_as_written_and_prints_what_it_says():
    printed = printed_by(SNIPPET).strip("[] \n").split()
    said = re.search(r"prints `\[(.*?)\]`", README)[1].split()
    assert [float(x) for x in printed] == pytest.approx([float(x) for x in said], rel=1e-3)


def test_the_quickstart_is_the_readmes_snippet():
    quickstart = ast.parse((ROOT / "examples/quickstart.py").read_text()).body[1:]  # without its docstring
    assert [ast.dump(line) for line in quickstart] == [ast.dump(line) for line in ast.parse(SNIPPET).body]


def test_the_readmes_table_is_the_one_the_laws_hold():
    held = {(row[3], row[4]) for row in TABLE}
    numbers = re.findall(r"\| \**([\d.]+)\** \| \**([\d.]+)\** \| \**(?:never|does not|vanishes)", README)
    assert len(numbers) == 5
    assert {(float(a), float(b)) for a, b in numbers} <= held


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example):
    assert "distance from the" in printed_by_example(example)


@pytest.mark.slow  # each imports JAX anew
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run_in_a_process_of_their_own(example):
    command = [sys.executable, f"examples/{example}.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "distance from the" in done.stdout


def blocks_of(page):
    """(language, title, code) of every block of code."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return re.findall(r'^```(python|sh)(?: title="(.+?)")?\n(.*?)^```', text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, blocks = {"__name__": "__main__"}, blocks_of(page)
    assert blocks
    for language, title, code in blocks:
        if title:
            Path(title).write_text(code)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, f"{page}.md", "exec"), names)
        else:
            for command in code.splitlines():
                assert main(shlex.split(command)[1:]) == 0, command


def test_own_tasks_correction_brings_it_nearer():
    distances = [float(number) for number in re.findall(r"least squares ([\d.]+)", printed_by_example("own_task"))]
    assert distances[1] < distances[0] / 5


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
)
def test_links_between_documents_lead_somewhere(document):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert ((ROOT / document).parent / target).exists(), target
