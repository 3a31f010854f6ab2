"""The pages of results say what the kept records say."""

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedtrue.runner.archive import SUFFIX, read
from fedtrue.runner.packing import COMMITTED, tree_of
from fedtrue.runner.records import find_runs, read_run
from fedtrue.runner.sweep.cells import read_sweep

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "experiments" / "records"
SWEEPS = sorted((ROOT / "experiments").glob("*/*.toml"))
sys.path.insert(0, str(ROOT / "experiments"))
claims, results = importlib.import_module("claims"), importlib.import_module("results")


def tables_of_records():
    """(command, its block on a page) of every table that only reads records: nothing is trained for it."""
    blocks = [block for page in results.PAGES for block in results.TABLE.finditer(page.read_text())]
    reading = [block for block in blocks if block["kind"] == "claims" or block["command"].startswith("table ")]
    return {f"{block['kind']} {block['command']}": block for block in reading}


@pytest.mark.parametrize("command", TABLES_OF_RECORDS := tables_of_records(), ids=lambda command: command.split()[1])
def test_a_table_of_a_page_is_what_its_command_prints_byte_for_byte(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    block = TABLES_OF_RECORDS[command]
    assert results.table_of(block) == block["output"]


@pytest.mark.slow  # the tables of theory train
def test_the_pages_are_rebuilt_from_the_records_byte_for_byte():
    subprocess.run([sys.executable, ROOT / "experiments" / "results.py", "--check"], check=True)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_experiment_can_be_read_and_says_how_it_is_run(path):
    text = path.read_text()
    if "sweep" in tomllib.loads(text):
        assert read_sweep(path)
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    assert any(f"fedtrue {command} {path.relative_to(ROOT)}" in header for command in ("sweep", "run", "compare"))
    assert "Result:" in header


def test_every_claim_of_the_readme_leads_to_a_page_that_has_its_numbers():
    claims = (ROOT / "README.md").read_text().split("**Real data.**")[1].split("**Speed.**")[0].split("\n- ")[1:]
    assert claims
    for claim in claims:
        pages = re.findall(r"\]\((docs/results[\w/.]*\.md)", claim)
        text = "".join((ROOT / page).read_text() for page in [*pages, "docs/results.md"])
        numbers = re.findall(r"[+−]?\d+\.\d+ ± \d+\.\d+|[+−]\d+\.\d+", claim)
        assert pages and [number for number in numbers if number not in text] == []


@pytest.mark.slow  # reads every kept run
def test_records_are_of_runs_that_ended_and_name_their_device_and_a_command_without_a_machines_folders():
    for path in find_runs([RECORDS]):
        run = read_run(path)
        assert run.from_sweep and run.summary is not None
        assert run.origin["devices"] and "fedtrue " in run.origin["command"]
        assert not any(word.startswith("/") for word in shlex.split(run.origin["command"])), path


@pytest.mark.parametrize("path", sorted(RECORDS.glob(f"*{SUFFIX}")), ids=lambda path: path.name)
def test_an_archive_marks_the_runs_whose_code_was_not_committed(path):
    for name, run in read(path).runs.items():
        assert run.tree == tree_of(read_run(path / name).origin)


def test_the_readme_of_experiments_counts_these_runs():
    trees = [run.tree for path in RECORDS.glob(f"*{SUFFIX}") for run in read(path).runs.values()]
    said = f"{len(trees) - trees.count(COMMITTED)} of {len(trees)} kept runs"
    assert said in (ROOT / "experiments" / "README.md").read_text()


def test_every_archive_is_named_by_the_experiment_that_it_holds_the_records_of():
    said = re.findall(r"experiments/records/([\w.-]+\.runs\.xz)", "".join(path.read_text() for path in SWEEPS))
    assert set(said) == {path.name for path in RECORDS.glob(f"*{SUFFIX}")}


def test_records_are_few_files_of_a_few_megabytes():
    files = [path for path in RECORDS.rglob("*") if path.is_file()]
    assert len(files) < 100
    assert sum(path.stat().st_size for path in files) < 6e6
