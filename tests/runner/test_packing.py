"""A packed run is read like the run, but for what was left out."""

import numpy as np
import pytest

from fedtrue.cli import main
from fedtrue.runner.records import read_run


def test_a_packed_run_has_the_same_numbers_to_six_digits_and_the_same_bytes_every_time(tmp_path):
    run = tmp_path / "run"
    assert main(["run", "quadratic", "--rounds", "30", "--client-rate", "0.01", "--out", str(run), "--json"]) == 0
    for folder in ("once", "twice"):
        assert main(["pack", str(run), "-o", str(tmp_path / folder), "--json"]) == 0
    small, whole = read_run(tmp_path / "once" / "run"), read_run(run)
    assert small.summary == whole.summary and small.config == whole.config
    np.testing.assert_allclose(small.rounds["loss"], whole.rounds["loss"], rtol=1e-5)
    np.testing.assert_array_equal(small.rounds["bytes_up"], whole.rounds["bytes_up"])
    assert "cohort" not in small.rounds and not (tmp_path / "once" / "run" / "checkpoints").exists()
    for path in (tmp_path / "once" / "run").iterdir():
        assert path.read_bytes() == (tmp_path / "twice" / "run" / path.name).read_bytes()


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
