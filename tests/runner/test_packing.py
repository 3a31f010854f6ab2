"""A packed run is read like the run, but for what was left out."""

import numpy as np
import pytest

from fedtrue.cli import main
from fedtrue.runner.packing import pack
from fedtrue.runner.records import as_json, read_lines, read_run


def test_a_packed_run_has_the_same_numbers_to_four_digits_and_the_same_bytes_every_time(tmp_path):
    run = tmp_path / "run"
    assert main(["run", "quadratic", "--rounds", "30", "--client-rate", "0.01", "--out", str(run), "--json"]) == 0
    for folder in ("once", "twice"):
        assert main(["pack", str(run), "-o", str(tmp_path / folder), "--json"]) == 0
    small, whole = read_run(tmp_path / "once" / "run"), read_run(run)
    assert small.summary == whole.summary and small.config == whole.config
    np.testing.assert_allclose(small.rounds["loss"], whole.rounds["loss"], rtol=0.5e-3)  # of 1.000
    np.testing.assert_array_equal(small.rounds["bytes_up"], whole.rounds["bytes_up"])
    assert "cohort" not in small.rounds and not (tmp_path / "once" / "run" / "checkpoints").exists()
    for path in (tmp_path / "once" / "run").iterdir():
        assert path.read_bytes() == (tmp_path / "twice" / "run" / path.name).read_bytes()


def test_an_evaluation_keeps_six_digits_of_a_rounds_own_numbers_four_are_enough(tmp_path):
    line = {"round": 0, "loss": 1.23456789, "seconds": 0.0123456789, "evaluation": {"test": {"accuracy": 0.123456789}}}
    run = tmp_path / "run"
    run.mkdir()
    for name, text in {"config.toml": "", "summary.json": "{}", "metrics.jsonl": as_json(line)}.items():
        (run / name).write_text(text)
    pack(run, tmp_path / "small")
    expected = {"round": 0, "loss": 1.235, "seconds": 0.01235, "evaluation": {"test": {"accuracy": 0.123457}}}
    assert read_lines(tmp_path / "small" / "metrics.jsonl") == [expected]


def test_a_run_that_has_not_ended_is_not_packed(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text('task = "quadratic"\n')
    assert main(["pack", str(tmp_path / "run"), "-o", str(tmp_path / "small")]) == 2
    assert "has not ended" in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize("missing", ["nowhere"])
def test_a_folder_without_runs_is_refused(tmp_path, capsys, missing):
    assert main(["pack", str(tmp_path / missing), "-o", str(tmp_path / "small")]) == 2
    assert "is not a run folder and holds none" in capsys.readouterr().err
