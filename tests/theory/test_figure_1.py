"""Figure 1 shows what its caption says."""

import pytest

from fedtrue.cli import main
from fedtrue.report import figure_1


def test_figure_1b_fedavg_is_slow_adagrad_biased_and_the_corrected_ones_fast_and_consistent(tmp_path):
    data = figure_1.curves(tmp_path / "curves.png")
    fedavg, adagrad, local, joint = (row["numbers"] for row in data["rows"])
    assert fedavg["after 50 rounds"] > 10 * joint["after 50 rounds"]
    assert fedavg["after 600 rounds"] < fedavg["after 400 rounds"] < fedavg["after 200 rounds"]  # slow, and on its way
    assert adagrad["after 600 rounds"] > 1.05 * adagrad["after 200 rounds"] > 2  # decay makes it worse
    for corrected in (local, joint):
        assert corrected["after 600 rounds"] < corrected["after 400 rounds"] / 2 < corrected["after 200 rounds"] / 4
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_the_table_alone_draws_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "curves", "--markdown"]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header == "| method | after 50 rounds | after 200 rounds | after 400 rounds | after 600 rounds |"
    assert [row.split(" | ")[0] for row in rows] == [f"| {curve.name}" for curve in figure_1.METHODS]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_figure_1a_marks_adagrads_fixed_point_far_from_the_minimum_and_the_corrected_ones_near_it(tmp_path):
    data = figure_1.landscape(tmp_path / "landscape.png", resolution=21)
    fedavg, adagrad, local, joint = (row["numbers"]["distance from the minimum"] for row in data["rows"])
    assert adagrad > 10 * max(fedavg, local, joint)
    assert local == pytest.approx(joint, abs=1e-9)  # what the server divides by moves no fixed point
    assert (tmp_path / "landscape.png").stat().st_size > 10_000
