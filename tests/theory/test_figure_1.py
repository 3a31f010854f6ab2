"""Figure 1 shows what its caption says."""

import pytest

from fedtrue.cli import main
from fedtrue.theory import figure_1


def test_figure_1b_fedavg_is_slow_adagrad_biased_and_the_corrected_ones_fast_and_consistent():
    fedavg, adagrad, local, joint = (row["numbers"] for row in figure_1.curves()["rows"])
    assert fedavg["after 50 rounds"] > 10 * joint["after 50 rounds"]
    assert fedavg["after 600 rounds"] < fedavg["after 400 rounds"] < fedavg["after 200 rounds"]  # slow, but converging
    assert adagrad["after 600 rounds"] > 1.05 * adagrad["after 200 rounds"] > 2  # decay makes it worse
    for corrected in (local, joint):
        assert corrected["after 600 rounds"] < corrected["after 400 rounds"] / 2 < corrected["after 200 rounds"] / 4


def test_printing_the_table_draws_no_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "curves", "--markdown"]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header == "| method | after 50 rounds | after 200 rounds | after 400 rounds | after 600 rounds |"
    assert [row.split(" | ")[0] for row in rows] == [f"| {method.name}" for method in figure_1.METHODS]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_figure_1a_the_fixed_point_of_adagrad_is_far_from_the_minimum_and_those_of_the_corrected_ones_near_it():
    rows = figure_1.landscape()["rows"]
    fedavg, adagrad, local, joint = (row["numbers"]["distance from the minimum"] for row in rows)
    assert adagrad > 10 * max(fedavg, local, joint)
    assert local == pytest.approx(joint, abs=1e-9)  # the server's denominator does not move the fixed point


def test_one_round_moves_the_server_least_near_the_fixed_point():
    """FedAvg's fixed point is (1.58, 0.008), the nearest point of this grid (2, 0)."""
    field = figure_1.landscape_field(resolution=3)
    assert set(field.norms) == {method.name for method in figure_1.METHODS}
    assert field.x1.tolist() == [-4.5, 2.0, 8.5] and field.x2.tolist() == [-3.2, 0.0, 3.2]
    assert field.norms["FedAvg"].argmin() == 4  # row 1, column 1
