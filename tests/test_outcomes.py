"""Tables of finished runs in `fedtrue run` and `fedtrue sweep`: three statistics under three names."""

import json

import pytest

from fedtrue.cli import main
from fedtrue.commands.outcomes import cells_table, measures_of, metrics_table, rank_cells
from fedtrue.runner.summary import summarise
from fedtrue.tasks.metric import Metric


def summary(values, status="finished", metric="accuracy", kind=None):
    """The summary of a run whose test metric was measured after every round."""
    lines = [
        {"round": number, "loss": 1.0, "clients": 2, "evaluation": {"test": {metric: value}}}
        for number, value in enumerate(values)
    ]
    return summarise(lines, status, {metric: kind} if kind else {})


def texts(table):
    """The rows of a rich table."""
    return [list(row) for row in zip(*(column.cells for column in table.columns))]


def headings(table):
    return [column.header for column in table.columns]


def test_a_run_has_one_row_per_metric_and_one_column_per_statistic():
    shown = metrics_table("", summary([0.9] + [0.1] * 99 + [0.4]))
    assert headings(shown)[1:5] == ["final", "mean over the last 100 rounds", "evaluations in them", "best"]
    # mean (99 · 0.1 + 0.4) / 100 = 0.103; the best is of the first round
    assert texts(shown)[0] == ["test accuracy (%)", "40.00", "10.30", "100", "90.00", "1"]


def test_the_mean_of_a_short_run_is_over_all_its_rounds():
    assert "mean over all 40 rounds" in headings(metrics_table("", summary([0.5] * 40)))


def test_cells_are_sorted_best_first_by_their_mean_and_the_best_is_marked():
    cells = {"ends high": summary([0.1] * 99 + [0.9]), "level": summary([0.5] * 100), "low": summary([0.2] * 100)}
    shown = cells_table("", cells)
    assert [row[:2] for row in texts(shown)] == [["best", "level"], ["", "low"], ["", "ends high"]]
    assert headings(shown)[4] == "test accuracy, mean of the 100 evaluations in the last 100 rounds (%)"


def test_cells_are_ranked_by_the_declared_direction_of_the_metric():
    higher, lower = Metric(higher_is_better=True), Metric(higher_is_better=False)
    for kind, order in ((higher, ["b", "a"]), (lower, ["a", "b"])):
        cells = {name: summary([value], metric="auc", kind=kind) for name, value in (("a", 0.1), ("b", 0.2))}
        assert rank_cells(cells, measures_of(list(cells.values()))[0]) == order


def test_diverged_and_unfinished_cells_are_last_and_not_marked():
    cells = {"diverged": summary([0.9], "diverged"), "unfinished": {"status": "unfinished", "rounds": 0}}
    assert [row[0] for row in texts(cells_table("", cells))] == ["", ""]
    cells["fine"] = summary([0.1])
    assert [row[1] for row in texts(cells_table("", cells))] == ["fine", "diverged", "unfinished"]


def test_cells_without_metrics_are_listed():
    cells = {"a": {"status": "unfinished", "rounds": 0}}
    assert texts(cells_table("", cells)) == [["", "a", "unfinished", "0"]]


def test_run_sweep_and_table_agree_on_every_number(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(
        'task = "quadratic"\nrounds = 120\n[sweep.product]\nclient.learning_rate = [0.001, 0.1]\n'
    )
    assert main(["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    losses = [cell["mean_last.train.loss"]["value"] for cell in cells]
    assert losses == sorted(losses)  # the best first
    columns = "mean_last.train.loss,final.train.loss,best.train.loss,train.loss"
    for cell in cells:
        folder = tmp_path / "out" / cell["cell"]
        assert main(["table", str(folder), "--columns", columns, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert main(["run", str(folder / "config.toml"), "--json"]) == 0
        run = json.loads(capsys.readouterr().out)
        stored = json.loads((folder / "summary.json").read_text())
        assert run["mean_last.train.loss"] == {"value": pytest.approx(row["mean_last.train.loss"]["value"]),
                                               "evaluations": 100, "rounds": 100}  # fmt: skip
        assert stored["mean_last"]["train"]["loss"] == cell["mean_last.train.loss"]
        assert stored["final"]["train"]["loss"] == cell["final.train.loss"] == row["final.train.loss"]["value"]
        assert stored["best"]["train"]["loss"]["value"] == cell["best.train.loss"]["value"]
        assert run["final.train.loss"] == pytest.approx(cell["final.train.loss"])


@pytest.mark.filterwarnings("ignore:round")
def test_a_diverged_run_says_so_and_is_not_diagnosed(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["run", "quadratic", "--client", "sgd", "--client-rate", "1e200", "--rounds", "40", "-o", out]) == 0
    assert "rounds, diverged" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "diverged"
    assert main(["run", "quadratic", "--client", "sgd", "--client-rate", "1e200", "--rounds", "5"]) == 0
    assert "5 rounds, 4 of them skipped" in " ".join(capsys.readouterr().out.split())  # too few to count as diverged
    assert main(["diagnose", out]) == 2
    assert "has diverged: diagnose a run with a smaller learning rate" in capsys.readouterr().err


def test_a_private_run_shows_the_epsilon_that_it_has_spent(capsys):
    command = ["run", "quadratic", "--client", "sgd", "--client-rate", "0.01", "--rounds", "3", "--correction", "none"]
    command += ["--privacy", "gaussian(clip=0.1, noise=1)", "--weighting", "uniform", "--sampling", "poisson"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] > 0
    assert main(command) == 0
    assert "epsilon" in capsys.readouterr().out


def test_sweep_prints_the_command_that_repeats_one_cell(tmp_path, capsys):
    (tmp_path / "s.toml").write_text('task = "quadratic"\nrounds = 2\n[sweep.product]\nseed = [0, 1]\n')
    out = tmp_path / "out"
    assert main(["sweep", str(tmp_path / "s.toml"), "--out", str(out)]) == 0
    assert f"fedtrue run {out}/CELL/config.toml" in capsys.readouterr().out
    cell = next(path for path in out.iterdir() if path.is_dir())
    assert main(["run", str(cell / "config.toml"), "--json"]) == 0
