"""`ft.rounds`, warm starts, going further, held-out clients: the same bits as `ft.train`."""

import itertools
import json
import tomllib

import jax
import numpy as np
import pytest
import safetensors.numpy
from run_folders import left_by

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.precision import float64
from fedtrue.runner.checkpoint import by_path
from fedtrue.runner.warm_start import starting_weights

pytestmark = pytest.mark.usefixtures("quick_compilation")
TASK = ft.tasks.synthetic_tags(clients=10, words=20, tags=4)
METHOD = ft.fedopt(ft.client.adagrad(0.1), ft.server.adam(0.1))
SMALL = {"cohort": 3, "lanes": 1, "local_steps": 2, "seed": 7}


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    return folder, ft.train(TASK, METHOD, rounds=6, evaluate_every=3, **SMALL, out=folder)


def test_a_loop_by_hand_has_the_weights_records_and_evaluations_of_train_bit_for_bit(trained):
    _, result = trained
    losses, evaluations = [], {}
    for state, info in ft.rounds(TASK, METHOD, rounds=6, **SMALL):
        losses.append(info.metrics["loss"])
        if info.round % 3 == 0:
            evaluations[info.round] = {name: split.metrics for name, split in ft.evaluate(TASK, state).items()}
    assert (state.round, info.round, info.rounds) == (6, 6, 6)
    assert_equal(jax.tree.map(np.asarray, state.params), result.params)
    assert losses == result.history["loss"].tolist()
    assert evaluations == {entry["round"]: entry["metrics"] for entry in result.evaluations}


def test_a_loop_ends_when_the_user_leaves_it_and_checks_its_arguments_before_the_first_round():
    endless = ft.rounds(TASK, METHOD, **SMALL)
    assert [info.round for _, info in itertools.islice(endless, 3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="cohort must be an integer of at least 1 and at most 10, not 11"):
        ft.rounds(TASK, METHOD, cohort=11)


def test_the_body_of_a_loop_keeps_its_own_precision():
    for _ in ft.rounds(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.01)), rounds=2):
        assert jax.numpy.ones(1).dtype == np.float32  # although the task computes in float64


def test_an_evaluation_of_a_result_of_a_state_and_of_weights_is_the_same(trained):
    _, result = trained
    of_result, of_weights = ft.evaluate(TASK, result), ft.evaluate(TASK, result.params)
    assert of_result["test"].metrics == of_weights["test"].metrics


# --- warm starts ------------------------------------------------------------------------------------------------------


def test_a_start_from_weights_a_file_or_a_run_folder_is_the_same(trained):
    folder, result = trained
    for start in (result.params, folder / "model.safetensors", folder, str(folder)):
        assert_equal(starting_weights(start, TASK), result.params)


def test_a_run_that_starts_from_weights_trains_from_them_also_in_a_loop_by_hand(trained):
    folder, result = trained
    second = ft.train(TASK, METHOD, rounds=2, **SMALL, start=result.params)
    *_, (state, _) = ft.rounds(TASK, METHOD, rounds=2, **SMALL, start=folder)
    assert_equal(jax.tree.map(np.asarray, state.params), second.params)
    assert second.history["loss"][0] < result.history["loss"][0]


def test_a_simulation_starts_from_the_weights_themselves(trained):
    _, result = trained
    start = ft.Simulation(TASK, METHOD, **SMALL).start(result.params)
    assert_equal(jax.tree.map(np.asarray, start.params), result.params)


def test_a_run_that_has_not_ended_gives_the_weights_of_its_last_checkpoint(trained, tmp_path):
    folder, result = trained
    (tmp_path / "checkpoints").mkdir()
    for file in (folder / "checkpoints").iterdir():
        (tmp_path / "checkpoints" / file.name).write_bytes(file.read_bytes())
    assert_equal(starting_weights(tmp_path, TASK), result.params)


def test_the_start_is_recorded_and_another_one_is_refused_on_resume(trained, tmp_path):
    folder, result = trained
    arguments = {"rounds": 2, **SMALL, "out": tmp_path / "run"}
    ft.train(TASK, METHOD, **arguments, start=folder)
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["start"] == str(folder) and "from_python" not in config
    with pytest.raises(ValueError, match=r"start was .*, is not set"):
        ft.train(TASK, METHOD, **arguments, resume=True)
    before = left_by(tmp_path / "run")
    for file in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        file.write_bytes(b"damaged")
    ft.train(TASK, METHOD, **arguments, start=folder, resume=True)  # from the start, that is from the given weights
    assert left_by(tmp_path / "run") == before
    ft.train(TASK, METHOD, **{**arguments, "out": tmp_path / "given"}, start=result.params)
    assert tomllib.loads((tmp_path / "given" / "config.toml").read_text())["from_python"]


def test_wrong_weights_are_refused_before_a_folder_is_written(trained, tmp_path):
    _, result = trained
    wrong = {"nowhere": "nowhere does not exist: give a run folder or a .safetensors file"}
    (tmp_path / "text.safetensors").write_text("not weights")
    wrong[str(tmp_path / "text.safetensors")] = "is not a safetensors file"
    wrong[str(tmp_path)] = "has neither model.safetensors nor a checkpoint"
    names = list(by_path(result.params))
    arrays = dict(by_path(result.params))
    safetensors.numpy.save_file({**arrays, names[0]: np.zeros(3, np.float32)}, tmp_path / "shape.safetensors")
    wrong[str(tmp_path / "shape.safetensors")] = rf"{names[0]!r} has shape \(3,\), the task's has"
    safetensors.numpy.save_file({**arrays, names[0] + "x": np.zeros(3, np.float32)}, tmp_path / "more.safetensors")
    wrong[str(tmp_path / "more.safetensors")] = f"did you mean {names[0]!r}"
    for start, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            ft.train(TASK, METHOD, rounds=1, start=start, out=tmp_path / "run")
        assert not (tmp_path / "run" / "config.toml").exists()


# --- going further ----------------------------------------------------------------------------------------------------

RUN = ["run", "quadratic", "--client", "adam", "--client-state", "inherit", "--lanes", "1", "--seed", "3"]
RUN += ["--set", "task_options.noise=0.5", "--client-dropout", "0.2", "--local-steps", "4"]
RUN += ["--deadline", "3", "--speed-spread", "0.3"]


def test_a_run_that_goes_further_equals_one_that_was_asked_for_all_rounds_at_once(tmp_path, capsys):
    assert main([*RUN, "--rounds", "30", "--out", str(tmp_path / "whole")]) == 0
    assert main([*RUN, "--rounds", "12", "--out", str(tmp_path / "parts")]) == 0
    assert main(["resume", str(tmp_path / "parts"), "--rounds", "30"]) == 0
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")
    assert tomllib.loads((tmp_path / "parts" / "config.toml").read_text())["rounds"] == 30
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "parts")]) == 0
    assert "nothing to do, or go further with --rounds 60" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", str(tmp_path / "parts"), "--rounds", "20"]) == 2
    assert "--rounds 20 is less than the 30 rounds of" in capsys.readouterr().err


# --- clients that never train -----------------------------------------------------------------------------------------


def test_held_out_clients_never_train_and_are_evaluated_beside_the_others(tmp_path):
    task = ft.tasks.hold_out_clients(TASK, 0.3)
    assert (len(task.train), len(task.unseen)) == (7, 3)
    assert not set(task.train.client_ids) & set(task.unseen.client_ids)
    result = ft.train(task, METHOD, rounds=2, **SMALL, out=tmp_path / "python")
    assert set(result.evaluations[-1]["metrics"]) == {"validation", "test", "unseen"}
    direct = ft.evaluate(task, result, {"all": task.unseen})["all"].metrics
    assert result.evaluations[-1]["metrics"]["unseen"] == direct
    summary = json.loads((tmp_path / "python" / "summary.json").read_text())
    assert set(summary["final"]["unseen"]) == set(summary["final"]["test"])


def test_the_flag_holds_out_the_same_clients_as_the_function_and_a_python_run_is_resumed_with_them(tmp_path):
    ft.train(ft.tasks.hold_out_clients(TASK, 0.3), METHOD, rounds=2, **SMALL, out=tmp_path / "python")
    assert main(["resume", str(tmp_path / "python"), "--rounds", "3"]) == 0
    config = tomllib.loads((tmp_path / "python" / "config.toml").read_text())
    assert (config["holdout_clients"], config["rounds"]) == (0.3, 3)


@pytest.mark.parametrize("fraction, message", [(0.0, "above 0 and below 1"), (1.0, "above 0 and below 1")])
def test_a_wrong_fraction_is_refused(fraction, message):
    with pytest.raises(ValueError, match=message):
        ft.tasks.hold_out_clients(TASK, fraction)


def test_a_task_that_holds_out_clients_or_knows_its_minimiser_is_refused():
    with pytest.raises(ValueError, match="holds out 3 clients already"):
        ft.tasks.hold_out_clients(ft.tasks.hold_out_clients(TASK, 0.3), 0.3)
    with float64(), pytest.raises(ValueError, match="knows the minimiser of all its clients"):
        ft.tasks.hold_out_clients(ft.tasks.quadratic(), 0.5)


def test_a_run_that_goes_further_says_that_a_schedule_keeps_its_length(tmp_path, capsys):
    run = ["run", "quadratic", "--rounds", "5", "--client-rate", "cosine(0.01, 5)", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    assert main(["resume", str(tmp_path / "run"), "--rounds", "9"]) == 0
    assert "client.learning_rate.length stays 5 rounds" in capsys.readouterr().err
