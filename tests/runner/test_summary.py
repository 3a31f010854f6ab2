"""The summary of a run: three statistics of every metric, and which direction is better."""

import json
import math
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.runner.records import CONFIG, METRICS, SUMMARY, as_json, read_run
from fedtrue.runner.summary import declared_metrics, flat, read_outcome, summarise
from fedtrue.tasks.metric import Metric


def line(number, **entries):
    return {"round": number, "loss": 1.0 / (number + 1), "clients": 2, "cohort": [0, 1], "seconds": 0.1, **entries}


def test_the_summary_averages_the_last_hundred_rounds_as_the_paper_selects():
    lines = [line(number, loss=float(number), accuracy=number / 150) for number in range(150)]
    found = summarise(lines, "finished", {})
    assert found["mean_last"]["train"]["loss"] == {"value": 99.5, "evaluations": 100, "rounds": 100}  # of 50 … 149
    assert found["final"]["train"]["loss"] == 149.0
    assert found["best"]["train"]["loss"] == {"value": 0.0, "round": 0}  # the lowest loss
    assert found["best"]["train"]["accuracy"] == {"value": 149 / 150, "round": 149}  # the highest accuracy
    assert found["totals"]["seconds"] == pytest.approx(15.0)  # 150 × 0.1


def test_only_evaluations_of_the_last_hundred_rounds_count():
    evaluated = {9: 0.9, 99: 0.2, 149: 0.4}
    lines = [
        line(number, **({"evaluation": {"test": {"accuracy": evaluated[number]}}} if number in evaluated else {}))
        for number in range(150)
    ]
    found = summarise(lines, "finished", {})
    # (0.2 + 0.4) / 2; round 9 is before the last 100
    assert found["mean_last"]["test"]["accuracy"] == {"value": pytest.approx(0.3), "evaluations": 2, "rounds": 100}
    assert found["best"]["test"]["accuracy"] == {"value": 0.9, "round": 9}
    assert found["final"]["test"]["accuracy"] == 0.4


def test_a_skipped_round_has_no_loss_and_does_not_enter_the_mean():
    lines = [line(0, loss=2.0), line(1, loss=math.nan, clients=0), line(2, loss=4.0)]
    found = summarise(lines, "finished", {})
    assert found["mean_last"]["train"]["loss"] == {"value": 3.0, "evaluations": 2, "rounds": 3}  # (2 + 4) / 2
    assert (found["rounds"], found["totals"]["skipped_rounds"]) == (3, 1)


def test_the_mean_of_a_run_of_forty_rounds_is_over_forty():
    found = summarise([line(number, loss=1.0) for number in range(40)], "finished", {})
    assert found["mean_last"]["train"]["loss"] == {"value": 1.0, "evaluations": 40, "rounds": 40}


def test_statistics_have_the_names_of_table_columns():
    found = flat(summarise([line(0, loss=1.0)], "finished", {}))
    assert list(found) == ["final.train.loss", "mean_last.train.loss", "best.train.loss"]


def test_a_summary_without_mean_last_is_recomputed_from_the_lines(tmp_path):
    (tmp_path / METRICS).write_text("".join(as_json(line(number, loss=float(number))) for number in range(3)))
    (tmp_path / SUMMARY).write_text('{"status": "diverged", "rounds": 3, "last_100": {"train": {"loss": 1.0}}}')
    found = read_outcome(tmp_path)
    assert found["status"] == "diverged"
    assert found["mean_last"]["train"]["loss"] == {"value": 1.0, "evaluations": 3, "rounds": 3}  # (0 + 1 + 2) / 3
    assert read_outcome(tmp_path / "nowhere") is None


def test_a_run_of_no_rounds_has_a_summary():
    assert summarise([], "finished", {})["rounds"] == 0


def test_a_result_is_printed_without_its_weights():
    result = ft.train(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.0)), rounds=2)
    # at (5, 5): ½ (1 · 3² + 30 · 4²) = 244.5 and ½ (20 · 6² + 1 · 7²) = 384.5, mean 314.5
    assert repr(result) == "Result(finished after 2 rounds, final.train.loss=314.5)"


# --- which direction is better ----------------------------------------------------------------------------------------

AUC = {"higher_is_better": True, "percent": False}


def test_the_best_of_a_metric_is_in_the_direction_that_its_task_declares():
    lines = [line(number, auc=value) for number, value in enumerate([0.5, 0.9, 0.7])]
    assert summarise(lines, "finished", {"auc": Metric(True)})["best"]["train"]["auc"] == {"value": 0.9, "round": 1}
    assert summarise(lines, "finished", {"auc": Metric(False)})["best"]["train"]["auc"] == {"value": 0.5, "round": 0}


def test_a_run_folder_records_how_its_metrics_are_compared_before_the_run_has_ended(tmp_path):
    task = ft.tasks.from_arrays(
        [{"x": np.ones(3)}],
        lambda key: jnp.zeros(()),
        lambda params, example: (params - example["x"]) ** 2,
        metrics=lambda params, example: {"auc": params},
        higher_is_better=["auc"],
        test=[{"x": np.ones(2)}],
    )
    result = ft.train(task, ft.fedopt(ft.client.sgd(0.1)), rounds=2, out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / SUMMARY).read_text())
    assert summary["metrics"] == {"auc": AUC, "loss": {"higher_is_better": False, "percent": False}}
    assert result.summary == summary
    assert tomllib.loads((tmp_path / "run" / CONFIG).read_text())["origin"]["metrics"] == {"auc": AUC}
    (tmp_path / "run" / SUMMARY).unlink()
    assert declared_metrics(read_run(tmp_path / "run")) == {"auc": Metric(True)}
