"""A run that was stopped and resumed equals the uninterrupted run."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_folders import FEW, ROUNDS, Runs, left_by, lines_of, quadratic, stopping_after

import fedtrue as ft
from fedtrue.algorithm.methods import METHODS
from fedtrue.cli import main
from fedtrue.engine.simulation import Simulation
from fedtrue.engine.step_dispatch import StepSeconds
from fedtrue.runner.stop import Stopped
from fedtrue.spec import option_table
from tests.cases import samples_clients

pytestmark = pytest.mark.usefixtures("quick_compilation")
STOP_AFTER = 6
RNG = np.random.default_rng(0)


def classification():
    """float32, weights as a tree, six clients of different sizes, shuffled batches, a test set."""
    client = lambda examples: {
        "x": RNG.normal(size=(examples, 4)).astype(np.float32),
        "y": RNG.integers(0, 3, examples),
    }

    def loss(params, example):
        logits = example["x"] @ params["w"] + params["b"]
        return jax.nn.logsumexp(logits) - logits[example["y"]]

    return ft.tasks.from_arrays(
        [client(examples) for examples in (3, 5, 8, 9, 12, 7)],
        init=lambda key: {"w": 0.1 * jax.random.normal(key, (4, 3)), "b": jnp.zeros(3)},
        loss=loss,
        batch_size=4,
        test=[client(6)],
    )


def assert_resumed_is_uninterrupted(runs, path):
    runs.into(path / "whole")
    with pytest.raises(Stopped):
        runs.into(path / "parts", STOP_AFTER)
    assert len(lines_of(path / "parts")) in range(STOP_AFTER, ROUNDS)  # it did stop before the end
    runs.into(path / "parts")
    assert left_by(path / "parts") == left_by(path / "whole")


SLOW = pytest.mark.slow
CLIENTS = {  # every client and server optimizer once
    ("restart", "none"): (ft.client.sgd(0.05), ft.server.sgd(1.0)),
    ("restart", "local"): (ft.client.yogi(0.05), ft.server.adagrad(0.1)),
    ("restart", "joint"): (ft.client.adam(0.05), ft.server.momentum(0.5)),
    ("sync", "none"): (ft.client.adabelief(0.05), ft.server.adam(0.1)),
    ("sync", "local"): (ft.client.rmsprop(0.05), ft.server.yogi(0.1)),
    ("sync", "joint"): (ft.client.momentum(0.05, nesterov=True), ft.server.sgd(1.0)),
    ("inherit", "none"): (ft.client.adam(0.05), ft.server.momentum(0.5)),
    ("inherit", "local"): (ft.client.amsgrad(0.05), ft.server.adam(0.1)),
    ("inherit", "joint"): (ft.client.adagrad(0.05, lagged=True), ft.server.yogi(0.1)),
}


@pytest.mark.parametrize("state, correction", CLIENTS)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit_with_every_state_and_correction(
    state, correction, tmp_path
):
    client, server = CLIENTS[state, correction]
    method = ft.fedopt(client, server, correction, client_state=state)
    assert_resumed_is_uninterrupted(Runs(quadratic(), method, **FEW), tmp_path)


@pytest.mark.parametrize("state", ["inherit", pytest.param("restart", marks=SLOW), pytest.param("sync", marks=SLOW)])
def test_a_resumed_run_in_float32_with_shuffled_batches_a_tree_of_weights_and_momentum_equals_it_too(state, tmp_path):
    method = ft.fedopt(ft.client.adam(0.05), ft.server.adam(0.1), client_state=state)
    assert_resumed_is_uninterrupted(Runs(replace(classification(), test=None), method, cohort=3, lanes=1), tmp_path)


@SLOW  # client SGD and every server optimizer are above
@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_of_every_named_method_equals_the_uninterrupted_one(name, tmp_path):
    takes = option_table(METHODS[name])
    method = METHODS[name](
        **({"client_rate": 0.05} if "client_rate" in takes else {"client": ft.client.momentum(0.05)})
    )
    settings = FEW if samples_clients(name) else {**FEW, "cohort": None}
    assert_resumed_is_uninterrupted(Runs(quadratic(), method, **settings), tmp_path)


def test_a_run_may_be_stopped_after_every_dispatch(tmp_path):
    runs = Runs(quadratic(), ft.fedopt(*CLIENTS["inherit", "none"], "none", client_state="inherit"), **FEW)
    runs.into(tmp_path / "whole")
    stops = 0
    while not (tmp_path / "parts" / "summary.json").exists():
        try:
            runs.into(tmp_path / "parts", stop_after=1)
        except Stopped:
            stops += 1
    assert stops >= ROUNDS // 2  # the first dispatch of every process is one round
    runs.into(tmp_path / "parts")
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")


def test_a_resumed_run_returns_the_same_result_as_an_uninterrupted_one(tmp_path, monkeypatch):
    arguments = {"rounds": 6, "local_steps": 2, "lanes": 1, "evaluate_every": 1}
    task, method = classification(), ft.fedopt(ft.client.adagrad(0.1))
    whole = ft.train(task, method, **arguments)
    stop, after = stopping_after(3)
    progress = lambda done, rounds, metrics: after(done)
    monkeypatch.setattr("fedtrue.runner.train.Stop", lambda: stop)
    with pytest.raises(Stopped, match=r"stopped after round 3: resume with ft.train\(…, resume=True\)") as stopped:
        ft.train(task, method, **arguments, out=tmp_path / "parts", progress=progress)
    assert stopped.value.exit_code == 128 + 15
    monkeypatch.undo()
    parts = ft.train(task, method, **arguments, out=tmp_path / "parts", resume=True)
    jax.tree.map(np.testing.assert_array_equal, parts.params, whole.params)
    assert parts.evaluations == whole.evaluations
    for name in set(whole.history) - {"seconds"}:
        np.testing.assert_array_equal(parts.history[name], whole.history[name])


def test_stopping_without_a_folder_reports_that_nothing_was_saved(monkeypatch):
    stop, after = stopping_after(1)
    monkeypatch.setattr("fedtrue.runner.train.Stop", lambda: stop)
    with pytest.raises(Stopped, match=r"nothing was saved, as no folder \(out\) was given"):
        progress = lambda done, rounds, metrics: after(done)
        ft.train(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.1)), rounds=5, progress=progress)


def exploding(params, example):
    return params / example["zero"]  # the gradient is infinite; data itself must be finite


@pytest.mark.filterwarnings("ignore:round")
@pytest.mark.parametrize("dispatch", [1, 3, 400])
def test_a_diverged_run_ends_at_the_same_round_for_every_length_of_dispatches(dispatch, tmp_path):
    """Ten consecutive rounds without a finite update; the number of lines must not depend on timing."""
    task = ft.tasks.from_arrays([{"zero": np.array([0.0])}], lambda key: jnp.zeros(()), exploding)
    result = ft.train(task, ft.fedopt(ft.client.sgd(0.5)), rounds=500, out=tmp_path / "run", checkpoint_every=dispatch)
    assert (len(lines_of(tmp_path / "run")), result.summary["status"]) == (10, "diverged")
    assert result.summary["totals"]["skipped_rounds"] == 10


# --- the command line -------------------------------------------------------------------------------------------------

QUADRATIC = ["run", "quadratic", "--client", "adam", "--client-state", "inherit", "--rounds", "30", "--seed", "3"]
QUADRATIC += ["--lanes", "1"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A finished run, from the command line."""
    folder = tmp_path_factory.mktemp("runs") / "ended"
    assert main([*QUADRATIC, "--set", "task_options.noise=0.5", "--checkpoint-every", "10", "--out", str(folder)]) == 0
    return folder


def test_the_config_of_a_run_folder_reproduces_the_run_bit_for_bit(ended, tmp_path):
    assert main(["run", str(ended / "config.toml"), "--out", str(tmp_path / "again")]) == 0
    assert left_by(tmp_path / "again") == left_by(ended)


def test_a_run_without_a_checkpoint_starts_from_its_config(ended, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_bytes((ended / "config.toml").read_bytes())
    (folder / "metrics.jsonl").write_bytes((ended / "metrics.jsonl").read_bytes()[:1000])  # as if it died in round 5
    assert main(["resume", str(folder)]) == 0
    assert left_by(folder) == left_by(ended)


def test_resuming_a_finished_run_reports_it_and_changes_nothing(ended, capsys):
    before = {path: path.stat().st_mtime_ns for path in ended.rglob("*")}
    assert main(["resume", str(ended)]) == 0
    assert "has ended already, after 30 rounds: nothing to do" in " ".join(capsys.readouterr().out.split())
    assert {path: path.stat().st_mtime_ns for path in ended.rglob("*")} == before


def refused(arguments, capsys):
    """The one line on stderr of a command that exits with code 2."""
    capsys.readouterr()
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 or line.startswith("lanes: "), line
    return line


def test_a_folder_that_contains_a_run_is_refused_for_another(ended, capsys):
    before = left_by(ended), (ended / "config.toml").read_bytes()
    assert f"{ended} already contains a run: resume it with" in refused([*QUADRATIC, "--out", str(ended)], capsys)
    assert (left_by(ended), (ended / "config.toml").read_bytes()) == before


def test_a_folder_without_a_run_is_not_resumed(tmp_path, capsys):
    assert "is not a run folder: fedtrue run TASK --out" in refused(["resume", str(tmp_path)], capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_settings_were_edited_is_not_mixed_with_the_one_before(ended, tmp_path, capsys):
    folder = Path(shutil.copytree(ended, tmp_path / "run"))
    config = folder / "config.toml"
    before = config.read_text()
    config.write_text(before.replace("seed = 3", "seed = 4"))
    (folder / "summary.json").unlink()
    said = refused(["resume", str(folder)], capsys)
    assert f"{config} was changed after round 30 was trained: undo the change" in said
    config.write_text(before.replace("lanes = 1", 'lanes = 1\nlabel = "mine"'))  # may change on resume
    assert main(["resume", str(folder)]) == 0


def test_a_checkpoint_without_a_hash_of_settings_is_accepted(ended, tmp_path):
    folder = Path(shutil.copytree(ended, tmp_path / "run"))
    (folder / "summary.json").unlink()
    for file in (folder / "checkpoints").glob("*.json"):
        manifest = json.loads(file.read_text())
        assert len(manifest.pop("settings")) == 16
        file.write_text(json.dumps(manifest))
    assert main(["resume", str(folder)]) == 0
    assert left_by(folder) == left_by(ended)


def test_a_resume_of_an_ended_run_answers_in_the_schema_of_one_that_trains(ended, tmp_path, capsys):
    folder = Path(shutil.copytree(ended, tmp_path / "run"))
    (folder / "summary.json").unlink()
    capsys.readouterr()
    assert main(["resume", str(folder), "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert main(["resume", str(folder), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert trained.pop("seconds") > answer.pop("seconds") == 0
    assert answer == trained and answer["status"] == "finished"


def test_a_comparison_is_continued_by_its_own_command(tmp_path, capsys):
    (tmp_path / "tuning.toml").write_text("")
    assert "is a comparison: the same `fedtrue compare` command goes on" in refused(["resume", str(tmp_path)], capsys)


@pytest.mark.parametrize("command", ["resume", "diagnose", "personalise"])
def test_what_is_not_a_run_folder_is_refused_with_what_to_give_in_its_place(command, ended, tmp_path, capsys):
    assert f"{command} the folder of a run, e.g. {ended}" in refused([command, str(ended / "config.toml")], capsys)
    assert f"is a folder of runs: {command} one of its runs, e.g. {ended}" in refused(
        [command, str(ended.parent)], capsys
    )
    assert main(["pack", str(ended), "-o", str(tmp_path / "a.runs.xz"), "--allow-uncommitted"]) == 0
    for archive in (tmp_path / "a.runs.xz", tmp_path / "a.runs.xz" / "ended"):
        said = refused([command, str(archive)], capsys)
        assert f"an archive has no weights or checkpoints: {command} the folder of the run" in said


def test_a_run_from_python_is_resumed_by_the_command_line_if_its_parts_have_names(tmp_path):
    task, method = ft.tasks.quadratic(noise=0.1), ft.fedopt(ft.client.adam(0.1), server=ft.server.adam(0.1))
    ft.train(task, method, rounds=5, local_steps=[2, 3], cohort=1, seed=3, out=tmp_path / "run")
    before = left_by(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert left_by(tmp_path / "run") == before


def test_a_run_with_user_defined_parts_is_not_resumed_by_the_command_line(tmp_path, capsys):
    ft.train(classification(), ft.fedopt(ft.client.sgd(0.1)), rounds=1, out=tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    said = refused(["resume", str(tmp_path / "run")], capsys)
    assert "was written by a Python program and cannot be rebuilt, as some of its parts have no name: run" in said
    assert said.rstrip().endswith("run that program again")


def test_the_origin_names_version_commit_devices_packages_and_command(ended):
    origin = tomllib.loads((ended / "config.toml").read_text())["origin"]
    assert origin["version"] == ft.__version__
    assert origin["packages"]["jax"] == jax.__version__
    assert origin["devices"] == [f"{d.platform}:{d.device_kind}" for d in jax.local_devices()]
    assert set(origin) >= {"commit", "command", "python", "started"}


def test_settings_that_are_not_given_are_filled_in_in_the_config(ended):
    config = tomllib.loads((ended / "config.toml").read_text())
    assert config["client"]["learning_rate"] == 0.01  # the rate that the quadratic recommends
    assert config["client"]["beta2"] == 0.999
    assert (config["batch_size"], config["local_epochs"], "precision" in config) == (1, 1, False)  # float64 by its task
    assert config["task_options"] == {"noise": 0.5}


def test_the_bytes_of_a_round_depend_on_the_method(ended):
    """Two clients, two weights of 8 bytes: down the weights; up, jointly corrected, the update and its trace."""
    line = json.loads((ended / "metrics.jsonl").read_text().splitlines()[0])
    assert (line["bytes_down"], line["bytes_up"]) == (2 * 2 * 8, 2 * 2 * 2 * 8)


def test_a_resumed_or_repeated_run_keeps_the_dispatch_that_its_first_part_chose_by_timing(tmp_path, monkeypatch):
    """The two programs differ in the last bits, and the times of another day may choose the other one."""
    task, method = quadratic(), ft.fedopt(ft.client.adam(0.05))
    run = lambda **more: ft.train(task, method, out=tmp_path / "run", seed=0, **FEW, **more)
    monkeypatch.setattr(StepSeconds, "alone_is_faster", property(lambda times: True))
    run(rounds=2, dispatch="timed")
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["dispatch"] == "step"
    monkeypatch.setattr(StepSeconds, "alone_is_faster", property(lambda times: False))
    with monkeypatch.context() as forbidden:  # the compiled loop over rounds is that of the other dispatch
        forbidden.setattr(Simulation, "_empty_infos_of_cell", lambda *arguments: pytest.fail("it was timed again"))
        run(rounds=4, dispatch="timed", resume=True)
    asked = run(rounds=6, dispatch="round", resume=True)
    assert asked.summary["rounds"] == 6
