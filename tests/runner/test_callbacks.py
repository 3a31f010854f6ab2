"""Callbacks see every round, may stop a run, and an error in one costs nothing that was trained."""

import csv
import json
import struct

import jax
import numpy as np
import pytest
from run_folders import FEW, ROUNDS, Runs, left_by, lines_of, quadratic

import fedtrue as ft
from fedtrue.callbacks import STOP, Round, StopRun
from fedtrue.cli import main
from fedtrue.runner.callbacks.interface import round_of
from fedtrue.runner.records import METRICS, read_lines

pytestmark = pytest.mark.usefixtures("quick_compilation")
METHOD = ft.fedopt(ft.client.sgd(0.05), correction="none")
TASK = ft.tasks.synthetic_tags(clients=8, words=20, tags=4)
SMALL = {"rounds": 9, "cohort": 3, "lanes": 1, "local_steps": 1}


@pytest.fixture(scope="module")
def runs():
    return Runs(quadratic(), METHOD, **FEW)


class Seen:
    """Keeps all that it is called with."""

    def __init__(self, stop_at=None):
        self.rounds, self.evaluations, self.results, self.starts = [], [], [], []
        self.stop_at, self.closed = stop_at, 0

    def on_start(self, start):
        self.starts.append(start)

    def on_round(self, info):
        self.rounds.append(info)
        return STOP if info.round == self.stop_at else None

    def on_evaluation(self, info):
        self.evaluations.append(info)

    def on_end(self, result):
        self.results.append(result)

    def close(self):
        self.closed += 1


def test_every_round_is_seen_once_in_order_with_the_numbers_of_its_line(tmp_path):
    seen = Seen()
    result = ft.train(TASK, METHOD, **SMALL, evaluate_every=4, out=tmp_path / "run", callbacks=[seen])
    assert [info.round for info in seen.rounds] == list(range(1, 10))
    assert [info.round for info in seen.evaluations] == [4, 8, 9]  # the last round is always evaluated
    assert [info.evaluation for info in seen.evaluations] == [entry["metrics"] for entry in result.evaluations]
    lines = read_lines(tmp_path / "run" / METRICS)
    assert seen.rounds == [round_of(line, 9) for line in lines]
    first = seen.rounds[0]
    assert first.metrics == {"loss": lines[0]["loss"]} and first.clients == 3 and first.missing == 0
    assert (first.seconds, first.bytes_up) == (lines[0]["seconds"], lines[0]["bytes_up"])
    assert seen.results == [result] and seen.closed == 1
    (start,) = seen.starts
    assert (start.rounds, start.past, start.folder) == (9, [], tmp_path / "run")
    assert start.settings["cohort"] == 3


def test_callbacks_do_not_change_what_a_run_leaves(runs, tmp_path):
    runs.into(tmp_path / "plain")
    runs.into(tmp_path / "watched", callbacks=[Seen(), lambda info: None])
    assert left_by(tmp_path / "watched") == left_by(tmp_path / "plain")


@pytest.mark.parametrize("answer", [STOP, True, np.bool_(True), StopRun("enough")])
def test_a_callback_that_asks_to_stop_ends_the_run_after_the_dispatch_and_the_result_comes_back(runs, answer, tmp_path):
    reached = lambda info: answer if info.round == 6 else None
    result = runs.into(tmp_path / "run", callbacks=[reached])
    assert result.summary["status"] == "stopped"
    asked = "the callback <lambda> asked to stop"
    assert result.summary["stopped"] == ("enough" if answer == StopRun("enough") else asked)
    assert 6 <= len(result.history["loss"]) < ROUNDS
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stopped"] == result.summary["stopped"]
    assert repr(result).startswith(f"Result(stopped after {len(result.history['loss'])} rounds")


def test_a_request_to_stop_after_the_last_round_changes_nothing(runs, tmp_path):
    runs.into(tmp_path / "whole")
    assert runs.into(tmp_path / "asked", callbacks=[Seen(stop_at=ROUNDS)]).summary["status"] == "finished"
    assert left_by(tmp_path / "asked") == left_by(tmp_path / "whole")


def test_a_callback_may_ask_for_dispatches_of_one_round(runs, tmp_path):
    def reached(info):
        return info.round == 7

    reached.rounds_per_dispatch = 1
    assert len(runs.into(tmp_path / "run", callbacks=[reached]).history["loss"]) == 7


def test_a_stopped_run_that_goes_on_equals_one_that_was_never_stopped(runs, tmp_path):
    runs.into(tmp_path / "whole")
    assert runs.into(tmp_path / "parts", callbacks=[Seen(stop_at=6)]).summary["status"] == "stopped"
    seen = Seen()
    runs.into(tmp_path / "parts", callbacks=[seen])
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")
    (start,) = seen.starts
    assert [info.round for info in [*start.past, *seen.rounds]] == list(range(1, ROUNDS + 1))


def test_after_an_error_in_a_callback_the_run_has_a_checkpoint_and_goes_on_from_there(runs, tmp_path):
    def broken(info):
        if info.round == 6:
            raise KeyError("no such column")

    runs.into(tmp_path / "whole")
    seen = Seen()
    with pytest.raises(KeyError, match="no such column") as raised:
        runs.into(tmp_path / "parts", callbacks=[seen, broken])
    assert raised.value.__notes__ == ["raised by on_round of the callback broken after round 6"]
    assert not (tmp_path / "parts" / "summary.json").exists() and seen.closed == 1 and not seen.results
    done = len(lines_of(tmp_path / "parts"))
    assert (tmp_path / "parts" / "checkpoints" / f"{done:08d}.json").exists()
    runs.into(tmp_path / "parts")
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")


@pytest.mark.parametrize(
    "callbacks, message",
    [
        ([object()], "has none of on_start, on_round, on_evaluation, on_end, and is not a function"),
        ([Seen], r"callback Seen is a class: give an object, Seen\(…\)"),
        (Seen(), "callbacks takes a list"),
        ([lambda info: 3], r"on_round of the callback <lambda> returned 3: return ft.callbacks.STOP to stop the run"),
        ([ft.callbacks.EarlyStopping("test.recal_at_5")], "did you mean 'recall_at_5'"),
        ([ft.callbacks.EarlyStopping("tset.loss")], "split 'tset' is not known .did you mean 'test'"),
        ([ft.callbacks.EarlyStopping("test.loss")], "early stopping by test.loss needs evaluations .* evaluate_every"),
    ],
)
def test_a_wrong_callback_is_one_line_with_the_cure(callbacks, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        ft.train(TASK, METHOD, **SMALL, out=tmp_path / "run", callbacks=callbacks)


def test_a_callback_that_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError):
        ft.train(TASK, METHOD, **SMALL, out=tmp_path / "run", callbacks=[ft.callbacks.EarlyStopping("test.loss")])
    assert not (tmp_path / "run").exists()


# --- early stopping ---------------------------------------------------------------------------------------------------


def stops_at(values, patience, min_delta=0.0, name="accuracy", past=0):
    """After how many evaluations a run with these values stops; `past` of them were recorded before it was resumed."""
    stopping = ft.callbacks.EarlyStopping(f"test.{name}", patience, min_delta)
    infos = [Round(i + 1, None, {}, {"test": {name: value}}, 1, 0, 0, 0.0, 0, 0, {}) for i, value in enumerate(values)]
    stopping.on_start(ft.callbacks.Start(TASK, None, len(values), infos[:past], None, {}))
    return next((info.round for info in infos[past:] if stopping.on_round(info)), None)


@pytest.mark.parametrize(
    "values, patience, min_delta, expected",
    [
        ([0.1, 0.2, 0.3, 0.4], 1, 0.0, None),
        ([0.1, 0.3, 0.2, 0.3, 0.4], 2, 0.0, 4),  # 0.2 and 0.3 are not above 0.3
        ([0.1, 0.3, 0.2, 0.31, 0.2, 0.2], 2, 0.0, 6),  # 0.31 starts a new count
        ([0.1, 0.3, 0.2, 0.31], 2, 0.05, 4),  # 0.31 is not above 0.3 by more than 0.05
        ([0.5, np.nan, np.nan], 2, 0.0, 3),
    ],
)
def test_patience_counts_evaluations_without_an_improvement(values, patience, min_delta, expected):
    assert stops_at(values, patience, min_delta) == expected


def test_the_direction_is_what_the_metric_declares():
    falling = [0.5, 0.4, 0.3, 0.2]
    assert stops_at(falling, 2, name="accuracy") == 3
    assert stops_at(falling, 2, name="loss") is None


@pytest.mark.parametrize("past", [1, 2, 3])
def test_a_resumed_run_counts_on_from_its_records(past):
    assert stops_at([0.3, 0.2, 0.2, 0.2, 0.9], 3, past=past) == 4


def test_a_run_that_was_stopped_and_goes_on_gets_a_new_count():
    assert stops_at([0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.9], 2, past=3) == 5


def test_early_stopping_by_the_command_line_says_why_and_resume_goes_on(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--client", "sgd", "--client-rate", "0", "--correction", "none", "--lanes", "1", "--cohort", "2"]
    options = [f"task_options.{name}" for name in ("clients=6", "words=20", "tags=4")]
    small = [part for option in options for part in ("--set", option)]
    early = ["--early-stop", "test.loss", "--patience", "2", "--evaluate-every", "3", "--rounds", "40", "--csv"]
    assert main(["run", "synthetic_tags", *arguments, *small, *early, "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rounds"] == 9  # evaluations after 3, 6 and 9: a rate of 0 never improves on the first
    assert answer["stopped"].startswith("test.loss has not improved on") and answer["stopped"].endswith("2 evaluations")
    assert main(["resume", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 15  # a new count: 12 and 15
    assert len((out / "metrics.csv").read_text().splitlines()) == 1 + 15


def test_patience_without_a_metric_is_refused(capsys):
    assert main(["run", "quadratic", "--patience", "3"]) == 2
    assert "patience needs early_stop" in capsys.readouterr().err


def test_cells_of_a_sweep_that_train_together_stop_one_by_one_as_each_would_alone(tmp_path):
    text = (
        'task = "synthetic_tags"\nrounds = 12\ncohort = 2\nlanes = 1\nevaluate_every = 2\nearly_stop = "test.loss"\n'
        'patience = 1\ncorrection = "none"\n[task_options]\nclients = 6\nwords = 20\ntags = 4\n'
        '[sweep.product]\nclient = [{name = "sgd", learning_rate = 0.0}, {name = "sgd", learning_rate = 0.1}]\n'
    )
    (tmp_path / "sweep.toml").write_text(text)
    still, learning = ft.sweep(tmp_path / "sweep.toml", tmp_path / "cells", at_once=2)
    assert still.summary["status"] == "stopped" and still.summary["rounds"] == 4
    assert learning.summary["rounds"] > 4
    alone = tmp_path / "alone"
    assert main(["run", str(still.path / "config.toml"), "--out", str(alone)]) == 0
    jax.tree.map(np.testing.assert_array_equal, ft.load_run(alone).params, still.params)  # a rate of 0 moves nothing


# --- loggers ----------------------------------------------------------------------------------------------------------


def test_a_csv_file_has_one_row_per_round_also_after_a_stop_and_resume(tmp_path):
    file = ft.callbacks.CSV(tmp_path / "new folder" / "rounds.csv")
    tags = Runs(TASK, METHOD, cohort=3, lanes=1, local_steps=1)
    tags.into(tmp_path / "run", callbacks=[file, Seen(stop_at=4)])
    tags.into(tmp_path / "run", callbacks=[file])
    with file.path.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    lines = read_lines(tmp_path / "run" / METRICS)
    assert [int(row["round"]) for row in rows] == list(range(1, 10))
    assert [float(row["train.loss"]) for row in rows] == [line["loss"] for line in lines]
    evaluated = {int(row["round"]): float(row["test.loss"]) for row in rows if row["test.loss"]}
    recorded = {line["round"] + 1: line["evaluation"] for line in lines if "evaluation" in line}
    assert evaluated == {number: evaluation["test"]["loss"] for number, evaluation in recorded.items()}


def test_weights_and_biases_offline_keeps_every_round(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the extra `wandb`")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = ft.callbacks.WandB("fedtrue", mode="offline", dir=str(tmp_path))
    ft.train(TASK, METHOD, **{**SMALL, "rounds": 3}, callbacks=[logger])
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert file.stat().st_size > 0
    assert wandb.run is None  # a run of the user's own program stays what it was
    logged = [(item.nested_key or [item.key])[0] for record in _wandb_records(file) for item in record.history.item]
    assert logged.count("train/loss") == 3


def _wandb_records(file):
    """The records of an offline run: after 7 bytes, each a checksum, its length, its type, and a message."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = file.read_bytes()[7:]
    assert len(data) < 32_768, "a longer file has several blocks"
    while len(data) >= 7:
        length, kind = struct.unpack("<HB", data[4:7])
        if kind == 1:  # a whole record
            yield Record.FromString(data[7 : 7 + length])
        data = data[7 + length :]


def test_mlflow_keeps_every_round_and_the_settings_in_a_local_database(tmp_path):
    pytest.importorskip("mlflow", reason="needs the extra `mlflow`")
    pytest.importorskip("sqlalchemy", reason="needs the extra `mlflow`")
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    logger = ft.callbacks.MLflow("trial", tracking_uri=uri)
    result = ft.train(TASK, METHOD, **{**SMALL, "rounds": 3}, out=tmp_path / "run", callbacks=[logger])
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("trial").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["client.name"]) == ("run", "FINISHED", "sgd")
    losses = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")}
    assert losses == dict(enumerate(result.history["loss"]))
    assert run.data.metrics["test/loss"] == result.evaluations[-1]["metrics"]["test"]["loss"]


@pytest.mark.parametrize("logger, package", [("WandB", "wandb"), ("MLflow", "mlflow"), ("TensorBoard", "tensorboardX")])
def test_a_logger_without_its_package_names_the_extra(logger, package, monkeypatch):
    for name in (package, f"{package}.event_file_writer"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ValueError, match=rf"{logger} needs a package: pip install 'fedtrue\[{logger.lower()}\]'"):
        getattr(ft.callbacks, logger)(*(["folder"] if logger == "TensorBoard" else []))
