"""Records: one line per round, appended and never changed; an incomplete last line does not affect the others."""

import json
import math

import numpy as np
import pytest
from run_folders import FEW, ROUNDS, Runs, lines_of, quadratic

import fedtrue as ft
from fedtrue.runner.records import (
    METRICS,
    SUMMARY,
    Appender,
    as_json,
    columns,
    evaluations,
    find_runs,
    read_lines,
    read_run,
)


def line(number, **entries):
    return {"round": number, "loss": 1.0 / (number + 1), "clients": 2, "cohort": [0, 1], "seconds": 0.1, **entries}


def written(path, lines):
    appender = Appender(path, 0)
    appender.append(lines)
    appender.close()


def test_lines_read_back_are_the_lines_written_to_the_last_bit(tmp_path):
    lines = [line(number, norm=float(np.nextafter(0.1 * number, 1))) for number in range(50)]
    written(tmp_path / METRICS, lines)
    assert read_lines(tmp_path / METRICS) == lines


def test_a_number_that_is_not_finite_is_null_in_the_file_and_nan_in_the_columns(tmp_path):
    written(tmp_path / METRICS, [line(0, loss=math.inf), line(1, evaluation={"test": {"loss": math.nan}})])
    assert [text.count("null") for text in (tmp_path / METRICS).read_text().splitlines()] == [1, 1]
    found = read_lines(tmp_path / METRICS)
    assert math.isnan(found[0]["loss"]) and math.isnan(found[1]["evaluation"]["test"]["loss"])
    assert np.isnan(columns(found)["loss"][0])
    assert np.isnan(evaluations(found)["test"]["loss"][1][0])


def test_after_a_crash_at_any_byte_all_complete_lines_are_read(tmp_path):
    path, lines = tmp_path / METRICS, [line(number) for number in range(3)]
    written(path, lines)
    text = path.read_bytes()
    ends = [len("".join(map(as_json, lines[:count]))) - 1 for count in (1, 2, 3)]  # where lines are complete
    for length in range(len(text) + 1):
        path.write_bytes(text[:length])
        assert read_lines(path) == lines[: sum(length >= end for end in ends)]


def test_appending_after_an_incomplete_line_removes_it(tmp_path):
    path = tmp_path / METRICS
    written(path, [line(0), line(1)])
    path.write_bytes(path.read_bytes()[:-9])
    appender = Appender(path, 1)
    appender.append([line(1), line(2)])
    assert read_lines(path) == [line(0), line(1), line(2)]


def test_lines_after_the_checkpoint_are_removed_and_the_others_are_not_rewritten(tmp_path):
    path = tmp_path / METRICS
    written(path, [line(number) for number in range(5)])
    before = path.stat().st_ino
    assert len(Appender(path, 5).lines) == 5
    assert path.stat().st_ino == before
    assert Appender(path, 3).lines == read_lines(path) == [line(0), line(1), line(2)]


def test_a_damaged_line_before_the_last_is_refused_with_its_number(tmp_path):
    (tmp_path / METRICS).write_text('{"round":0}\n{"rou\n{"round":2}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is not JSON: the file was changed after it was writ"):
        read_lines(tmp_path / METRICS)


# --- records of a run -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "sgd"
    Runs(quadratic(), ft.fedopt(ft.client.sgd(0.05), correction="none"), **FEW).into(path)
    (path / "config.toml").write_text('label = "plain"\n[origin]\nversion = "1"\n')
    return path


def test_every_round_has_a_line_with_cohort_steps_dropped_clients_norm_bytes_and_seconds(folder):
    lines = read_lines(folder / METRICS)
    assert [entry["round"] for entry in lines] == list(range(ROUNDS))
    for entry in lines:
        assert len(set(entry["cohort"])) == 2  # of five clients, drawn without replacement
        assert (entry["clients"], entry["dropped"], entry["idle_steps"]) == (2, 0, 0)
        assert entry["steps"] == 2 * 3  # two clients, three steps each
        assert entry["bytes_up"] == entry["bytes_down"] == 2 * 3 * 8  # two clients, three weights, eight bytes
        assert entry["seconds"] > 0
        assert np.isfinite([entry["loss"], entry["pseudo_gradient_norm"]]).all()
    totals = json.loads((folder / SUMMARY).read_text())["totals"]
    assert (totals["steps"], totals["bytes_up"]) == (6 * ROUNDS, 48 * ROUNDS)


def test_a_run_folder_is_read_with_its_label_origin_records_and_summary(folder):
    run = read_run(folder)
    assert (run.name, run.origin, run.config) == ("plain", {"version": "1"}, {"label": "plain"})
    assert run.rounds["cohort"].shape == (ROUNDS, 2)
    assert list(run.rounds["loss"]) == [entry["loss"] for entry in lines_of(folder)]
    assert run.summary == json.loads((folder / SUMMARY).read_text())


def test_run_folders_are_found_at_any_depth_and_only_once(tmp_path):
    for name in ("a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text("")
    assert find_runs([tmp_path, tmp_path / "c"]) == [tmp_path / "a/b", tmp_path / "c"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is not a run folder and holds none: fedtrue run TASK --out"):
        find_runs([tmp_path / "empty"])
