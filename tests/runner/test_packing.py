"""A packed run is read like the run, without the omitted keys; uncommitted code is refused or marked."""

import json
import math

import numpy as np
import pytest

from fedtrue.cli import main
from fedtrue.runner.archive import SUFFIX, read
from fedtrue.runner.records import CONFIG, METRICS, SUMMARY, SWEEP, as_json, find_runs, read_run, run_lines

COMMIT = "0123456789abcdef"


def write_run(folder, commit=COMMIT, lines=({"round": 0, "loss": 1.0},)):
    folder.mkdir(parents=True)
    origin = "" if commit is None else f'commit = "{commit}"\n'
    (folder / CONFIG).write_text(f'task = "quadratic"\n\n[origin]\nversion = "1"\n{origin}')
    (folder / METRICS).write_text("".join(map(as_json, lines)))
    (folder / SUMMARY).write_text('{"status": "finished"}')
    return folder


def write_sweep(folder, names=("000-a", "001-b"), text='task = "quadratic"\n', **settings):
    for name in names:
        write_run(folder / name, **settings)
    (folder / SWEEP).write_text(text)
    return folder


def pack(*arguments):
    return main(["pack", *map(str, arguments)])


def refused(capsys, *arguments):
    """The one line on stderr of a refused `pack`."""
    assert pack(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_packed_run_has_the_same_numbers_to_four_digits_and_the_same_bytes_every_time(tmp_path):
    run = tmp_path / "run"
    assert main(["run", "quadratic", "--rounds", "30", "--client-rate", "0.01", "--out", str(run), "--json"]) == 0
    for folder in ("once", "twice"):
        assert pack(run, "-o", tmp_path / folder, "--allow-uncommitted", "--json") == 0  # of the tree under test
    once, twice = (tmp_path / folder / f"run{SUFFIX}" for folder in ("once", "twice"))
    small, whole = read_run(once / "run"), read_run(run)
    assert (small.summary, small.config) == (whole.summary, whole.config)
    assert {**small.origin, "command": ""} == {**whole.origin, "command": ""}
    np.testing.assert_allclose(small.rounds["loss"], whole.rounds["loss"], rtol=0.5e-3)  # of 1.000
    np.testing.assert_array_equal(small.rounds["bytes_up"], whole.rounds["bytes_up"])
    assert "cohort" not in small.rounds
    assert once.read_bytes() == twice.read_bytes()


def test_a_packed_run_of_an_own_task_file_has_no_folders_of_this_machine(tmp_path):
    run = write_run(tmp_path / "run")
    config = (run / CONFIG).read_text()
    (run / CONFIG).write_text(config.replace('"quadratic"', f'"{tmp_path}/my_file.py:small"'))
    assert pack(run, "-o", tmp_path) == 0
    packed = read_run(tmp_path / f"run{SUFFIX}" / "run")
    assert packed.config["task"] == "my_file.py:small"
    assert packed.config_text == config.replace("quadratic", "my_file.py:small")


@pytest.mark.parametrize(
    "command, packed",
    [
        (
            "fedtrue sweep experiments/a.toml --cells '*seed=1' --out /tmp/x",
            "fedtrue sweep experiments/a.toml --cells '*seed=1'",
        ),
        ("fedtrue compare my.py -o runs/x --budget 4", "fedtrue compare my.py --budget 4"),
        ("fedtrue run /home/me/my.py:small --out=runs/x", "fedtrue run my.py:small"),
        ("fedtrue run quadratic --set server.epsilon=1e-5", "fedtrue run quadratic --set server.epsilon=1e-5"),
    ],
)
def test_a_packed_command_has_no_folders_of_this_machine(command, packed, tmp_path):
    run = write_run(tmp_path / "run")
    with (run / CONFIG).open("a") as config:
        config.write(f'command = "{command}"\ndevices = ["cpu"]\n')
    assert pack(run, "-o", tmp_path) == 0
    origin = read_run(tmp_path / f"run{SUFFIX}" / "run").origin
    assert (origin["command"], origin["devices"]) == (packed, ["cpu"])


def test_evaluations_keep_six_digits_and_training_metrics_four(tmp_path):
    line = {"round": 0, "loss": 1.23456789, "seconds": 0.0123456789, "evaluation": {"test": {"accuracy": 0.123456789}}}
    assert pack(write_run(tmp_path / "run", lines=[line]), "-o", tmp_path) == 0
    expected = {"round": 0, "loss": 1.235, "seconds": 0.01235, "evaluation": {"test": {"accuracy": 0.123457}}}
    assert run_lines(tmp_path / f"run{SUFFIX}" / "run") == [expected]


def test_only_evaluations_keeps_sums_and_means_of_the_rounds_between(tmp_path):
    evaluated = {"evaluation": {"test": {"accuracy": 0.5}}}
    lines = [
        {"round": 0, "loss": 1.0, "clients": 10, "bytes_up": 7, "seconds": 1.0},
        {"round": 1, "loss": 3.0, "clients": 10, "bytes_up": 5, "seconds": 2.0} | evaluated,
        {"round": 2, "loss": math.nan, "clients": 0, "bytes_up": 1, "seconds": 4.0},  # a skipped round has no loss
        {"round": 3, "loss": 5.0, "clients": 10, "bytes_up": 1, "seconds": 4.0},
    ]
    run, small = write_run(tmp_path / "run", lines=lines), tmp_path / f"run{SUFFIX}"
    assert pack(run, "-o", small, "--only-evaluations") == 0
    assert run_lines(small / "run") == [
        {"round": 1, "loss": 2.0, "clients": 10.0, "bytes_up": 12, "seconds": 3.0} | evaluated,
        {"round": 3, "loss": 5.0, "clients": 5.0, "bytes_up": 2, "seconds": 8.0},  # after the last evaluation
    ]
    assert read_run(small / "run").rounds_done == read_run(run).rounds_done == 4
    once = small.read_bytes()
    assert pack(small, "-o", small, "--only-evaluations") == 0 and small.read_bytes() == once


def test_tables_and_costs_to_a_target_are_the_same_with_only_evaluations(tmp_path, capsys):
    line = lambda r: {"round": r, "loss": 1.0, "bytes_up": 4, "bytes_down": 3, "seconds": 0.5}
    evaluated = lambda r: {"evaluation": {"test": {"accuracy": r / 400}}} if r % 10 == 9 else {}
    write_run(tmp_path / "run", lines=[line(r) | evaluated(r) for r in range(200)])
    tables = []
    for name, flags in ("whole", []), ("small", ["--only-evaluations"]):
        assert pack(tmp_path / "run", "-o", tmp_path / name, *flags) == 0
        for columns in (
            ["--columns", "test.accuracy,final.test.accuracy,best.test.accuracy,train.loss,rounds_done,bytes"],
            ["--target", "0.25", "--columns", "rounds_to,bytes_to,seconds_to"],
        ):
            capsys.readouterr()
            assert main(["table", str(tmp_path / name), *columns]) == 0
            tables.append(capsys.readouterr().out)
    assert tables[:2] == tables[2:]
    assert "| 110 | 770 B |" in tables[1]  # 0.25 · 400 = 100, next evaluated after round 110; 110 · (4 + 3)


def test_packing_an_archive_gives_the_same_bytes(tmp_path):
    assert pack(write_sweep(tmp_path / "rates"), "-o", tmp_path / "once") == 0
    assert pack(tmp_path / "once", "-o", tmp_path / "twice") == 0
    once, twice = (tmp_path / folder / f"rates{SUFFIX}" for folder in ("once", "twice"))
    assert once.read_bytes() == twice.read_bytes()


# --- which archive ----------------------------------------------------------------------------------------------------


def test_a_sweep_is_one_archive_and_so_is_a_single_run(tmp_path, capsys):
    write_sweep(tmp_path / "runs" / "rates", text='task = "quadratic"  # η\n')
    write_run(tmp_path / "runs" / "alone")
    assert pack(tmp_path / "runs", "-o", tmp_path / "kept", "--json") == 0
    kept = tmp_path / "kept"
    assert sorted(path.name for path in kept.iterdir()) == [f"alone{SUFFIX}", f"rates{SUFFIX}"]
    assert (list(read(kept / f"rates{SUFFIX}").runs), read(kept / f"rates{SUFFIX}").sweep) == (
        ["000-a", "001-b"],
        'task = "quadratic"  # η\n',
    )
    assert (list(read(kept / f"alone{SUFFIX}").runs), read(kept / f"alone{SUFFIX}").sweep) == (["alone"], None)
    answer = json.loads(capsys.readouterr().out)
    assert {archive["file"]: archive["runs"] for archive in answer["archives"]} == {
        str(kept / f"alone{SUFFIX}"): 1,
        str(kept / f"rates{SUFFIX}"): 2,
    }


def test_a_run_is_packed_from_inside_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(write_sweep(tmp_path / "rates", ["000-a"]) / "000-a")
    assert pack(".", "-o", tmp_path / "inside") == pack(tmp_path / "rates", "-o", tmp_path / "outside") == 0
    inside, outside = (tmp_path / folder / f"rates{SUFFIX}" for folder in ("inside", "outside"))
    assert inside.read_bytes() == outside.read_bytes()


def test_the_order_in_which_runs_are_given_does_not_matter(tmp_path):
    cells = sorted((write_sweep(tmp_path / "rates")).glob("*-*"))
    assert pack(*cells, "-o", tmp_path / f"one{SUFFIX}") == 0
    assert pack(*reversed(cells), "-o", tmp_path / f"two{SUFFIX}") == 0
    assert (tmp_path / f"one{SUFFIX}").read_bytes() == (tmp_path / f"two{SUFFIX}").read_bytes()


def test_a_file_takes_the_runs_of_one_sweep(tmp_path, capsys):
    write_sweep(tmp_path / "runs" / "rates")
    target = tmp_path / "deep" / f"any-name{SUFFIX}"
    assert pack(tmp_path / "runs", "-o", target) == 0
    assert "any-name.runs.xz: 2 runs" in capsys.readouterr().out
    write_run(tmp_path / "runs" / "alone")
    line = refused(capsys, tmp_path / "runs", "-o", tmp_path / f"other{SUFFIX}")
    assert "takes the runs of one sweep, these are of alone, rates: give a folder" in line
    assert not (tmp_path / f"other{SUFFIX}").exists()


def test_a_file_of_another_format_is_refused_as_a_target(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    (tmp_path / "notes").write_text("text")
    for name in ("notes", "run.xz"):
        assert f"{name} is not the name of an archive: give a folder, or a file NAME.runs.xz" in refused(
            capsys, run, "-o", tmp_path / name
        )
    assert (tmp_path / "notes").read_text() == "text"


def test_cells_trained_later_are_added_by_giving_the_archive_too(tmp_path, capsys):
    early, late = write_sweep(tmp_path / "early" / "x", ["000-a"]), write_sweep(tmp_path / "late" / "x", ["001-b"])
    whole = write_sweep(tmp_path / "whole" / "x")
    kept = tmp_path / "kept" / f"x{SUFFIX}"
    assert pack(early, "-o", kept.parent) == 0
    line = refused(capsys, late, "-o", kept.parent)
    assert "holds 1 run that is not among those given (000-a)" in line and f"give {kept} too, or delete it" in line
    assert list(read(kept).runs) == ["000-a"]
    assert pack(kept, late, "-o", kept.parent) == 0
    assert pack(whole, "-o", tmp_path / "at-once") == 0
    assert kept.read_bytes() == (tmp_path / "at-once" / f"x{SUFFIX}").read_bytes()


def test_cells_are_added_after_the_comments_of_the_sweep_file_changed(tmp_path):
    early, late = write_sweep(tmp_path / "early" / "x", ["000-a"]), write_sweep(tmp_path / "late" / "x", ["001-b"])
    before = (early / SWEEP).read_text()
    (late / SWEEP).write_text("# Result: 000-a is better.\n" + before)
    kept = tmp_path / f"x{SUFFIX}"
    assert pack(early, "-o", kept) == 0
    assert pack(kept, late, "-o", kept) == 0
    assert list(read(kept).runs) == ["000-a", "001-b"] and read(kept).sweep == before


def test_runs_of_one_name_and_sweeps_of_one_name_are_not_mixed(tmp_path, capsys):
    a, b = write_sweep(tmp_path / "a" / "x"), write_sweep(tmp_path / "b" / "x")
    assert "two runs are called x/000-a" in refused(capsys, a, b, "-o", tmp_path / "kept")
    (b / SWEEP).write_text('task = "mnist"\n')
    assert "are cells of two different sweeps called x" in refused(capsys, a, b, "-o", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_run_that_has_not_ended_is_not_packed(tmp_path, capsys):
    (write_run(tmp_path / "run") / SUMMARY).unlink()
    assert "has not ended: `fedtrue resume" in refused(capsys, tmp_path / "run", "-o", tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_a_sweep_that_was_stopped_can_be_packed_without_the_runs_that_have_not_ended(tmp_path):
    sweep = write_sweep(tmp_path / "x")
    (sweep / "000-a" / SUMMARY).unlink()
    assert pack(sweep, "-o", tmp_path / "small", "--only-ended") == 0
    assert list(read(tmp_path / "small" / f"x{SUFFIX}").runs) == ["001-b"]


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    line = refused(capsys, tmp_path / "nowhere", "-o", tmp_path / "small")
    assert "is not a run folder and holds none" in line


# --- uncommitted code -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commit", "why"),
    [
        (COMMIT + "+", "was trained from a tree with uncommitted changes (commit 0123456+)"),
        ("", "was trained from an unknown commit"),
        (None, "was trained from an unknown commit"),
    ],
)
def test_a_run_whose_code_was_not_committed_is_refused_with_its_name_and_the_cure(tmp_path, capsys, commit, why):
    write_sweep(tmp_path / "rates", ["000-a"])
    write_run(tmp_path / "rates" / "001-b", commit)
    line = refused(capsys, tmp_path / "rates", "-o", tmp_path / "kept")
    assert f"{tmp_path / 'rates' / '001-b'} {why}" in line
    assert "train it again from a clean checkout, or mark it with --allow-uncommitted" in line
    assert not (tmp_path / "kept").exists()


def test_a_refusal_counts_the_other_runs(tmp_path, capsys):
    write_sweep(tmp_path / "rates", ["a", "b", "c"], commit=COMMIT + "+")
    line = refused(capsys, tmp_path / "rates", "-o", tmp_path / "kept")
    assert f"{tmp_path / 'rates' / 'a'} (and 2 more) was trained" in line


def test_with_allow_uncommitted_the_archive_marks_every_run(tmp_path, capsys):
    for name, commit in {"0": COMMIT, "1": COMMIT + "+", "2": ""}.items():
        write_run(tmp_path / "rates" / name, commit)
    (tmp_path / "rates" / SWEEP).write_text("")
    assert pack(tmp_path / "rates", "-o", tmp_path / "kept", "--allow-uncommitted") == 0
    kept = tmp_path / "kept" / f"rates{SUFFIX}"
    assert [run.tree for run in read(kept).runs.values()] == ["committed", "uncommitted", "unknown"]
    assert "3 runs, 2 of them from uncommitted or unknown code" in capsys.readouterr().out
    assert main(["table", str(kept), "--columns", "seed,commit"]) == 0
    assert "0123456; 0123456+; unknown" in capsys.readouterr().out


def test_an_archive_of_marked_runs_is_refused_again_without_the_flag(tmp_path, capsys):
    write_run(tmp_path / "run", COMMIT + "+")
    assert pack(tmp_path / "run", "-o", tmp_path / "kept", "--allow-uncommitted") == 0
    capsys.readouterr()
    assert "uncommitted changes" in refused(capsys, *find_runs([tmp_path / "kept"]), "-o", tmp_path / "again")
