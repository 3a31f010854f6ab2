"""Cells of a sweep are runs: trained together, each gives the result of a single run, even if interrupted."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import jax
import numpy as np
import pytest
import safetensors.numpy

from fedtrue.cli import main
from fedtrue.files import write_atomically
from fedtrue.runner.build import load_task, steps_of_clients
from fedtrue.runner.records import read_run
from fedtrue.runner.resolve import resolved
from fedtrue.runner.settings import read_toml
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.runner.sweep import train_cells
from fedtrue.runner.sweep.cells import read_sweep
from fedtrue.runner.sweep.run import groups, prepare, run_groups

PARTS = """
task = "quadratic"
rounds = 30
local_steps = [2, 7]
checkpoint_every = 10

[sweep.product]
correction = ["none", "joint"]
client.learning_rate = [0.01, 0.05]

[[sweep.cells]]
label = "SGD"
client = { name = "sgd" }

[[sweep.cells]]
client = { name = "adam", beta1 = 0.5 }
server = { name = "adagrad", learning_rate = 0.1 }

[[sweep.cells]]
client = { name = "adagrad" }
server = { name = "momentum", learning_rate = 0.5, beta = 0.8 }
"""  # 2 · 2 · 3 = 12 cells, three clients and three servers


def nothing(*_):
    pass


def sweep(text: str, folder: Path, at_once=None, stop=None, on_progress=nothing):
    """The sweep of `text` in `folder/out`, and its cells."""
    folder.mkdir(exist_ok=True)
    (folder / "sweep.toml").write_text(text)
    cells, found = prepare(folder / "sweep.toml", folder / "out")
    run_groups(found, folder / "out", at_once, stop or Stop(), on_progress, nothing)
    return cells, folder / "out"


def weights(run: Path) -> np.ndarray:
    return safetensors.numpy.load_file(run / "model.safetensors")["params"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return sweep(PARTS, tmp_path_factory.mktemp("sweep"))


def test_cells_that_differ_in_parts_and_numbers_share_one_program(tmp_path, parts):
    cells, _ = parts
    ((_, together),) = groups(cells, tmp_path)
    assert len(together) == len(cells) == 12


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_cell_equals_the_same_run_alone(every, tmp_path, parts):
    """Every fifth cell: each client, server and correction once or more."""
    cells, out = parts
    for cell in cells[::every]:
        alone = tmp_path / cell.name
        assert main(["run", str(out / cell.name / "config.toml"), "--out", str(alone), "--json"]) == 0
        np.testing.assert_allclose(weights(out / cell.name), weights(alone), rtol=1e-12)
        ours, theirs = read_run(out / cell.name), read_run(alone)
        np.testing.assert_allclose(ours.rounds["loss"], theirs.rounds["loss"], rtol=1e-12)
        for sent in ("bytes_up", "bytes_down"):  # the program has the parts of all cells; the records must not
            np.testing.assert_array_equal(ours.rounds[sent], theirs.rounds[sent])


def test_cells_trained_in_chunks_equal_cells_trained_at_once(tmp_path, parts):
    cells, out = parts
    _, in_turn = sweep(PARTS, tmp_path, at_once=5)
    for cell in cells:
        np.testing.assert_allclose(weights(in_turn / cell.name), weights(out / cell.name), rtol=1e-12)


SEEDS = """
task = "quadratic"
rounds = 5
cohort = 1
{}
[sweep.product]
seed = [0, 1, 2]
client.learning_rate = [0.01, 0.05]
"""


@pytest.mark.parametrize(("settings", "programs"), [("", 1), ("deadline = 5.0", 3)])
def test_groups_that_differ_in_their_seed_share_a_program_unless_it_decides_how_fast_clients_are(
    tmp_path, monkeypatch, settings, programs
):
    made = []

    class Counted(train_cells.Simulation):
        def __init__(self, *arguments, **options):
            made.append(self)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(train_cells, "Simulation", Counted)
    cells, out = sweep(SEEDS.format(settings), tmp_path)
    assert len(made) == programs
    assert all(simulation._run.compilations == 1 for simulation in made)
    for cell in cells:
        assert main(["run", str(out / cell.name / "config.toml"), "--out", str(tmp_path / cell.name), "--json"]) == 0
        np.testing.assert_allclose(weights(out / cell.name), weights(tmp_path / cell.name), rtol=1e-12)
    assert len({tuple(weights(out / cell.name)) for cell in cells}) == len(cells)  # other seeds, other cohorts


def test_cells_that_do_not_fit_the_memory_train_half_as_many_at_once(tmp_path, parts, monkeypatch):
    """A device with memory for six cells: twelve fail, six and six succeed."""
    cells, out = parts
    tried = []

    def with_little_memory(simulation, *arguments, **settings):
        tried.append(simulation.cells)
        if simulation.cells > 6:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return run_rounds(simulation, *arguments, **settings)

    run_rounds = train_cells.run_rounds
    monkeypatch.setattr(train_cells, "run_rounds", with_little_memory)
    _, halved = sweep(PARTS, tmp_path)
    assert tried == [12, 6, 6]
    for cell in cells:
        np.testing.assert_allclose(weights(halved / cell.name), weights(out / cell.name), rtol=1e-12)


@pytest.fixture(scope="module")
def stopped_sweep(tmp_path_factory):
    folder, stop = tmp_path_factory.mktemp("stopped"), Stop()

    def after_some_rounds(name, lines):
        stop.signal = 2 if len(lines) >= 9 else 0

    with pytest.raises(Stopped, match=f"resume {folder / 'out'}"):
        sweep(PARTS, folder, stop=stop, on_progress=after_some_rounds)
    assert not list((folder / "out").glob("*/summary.json"))
    return folder / "out"


def test_a_stopped_sweep_resumes_bit_for_bit_and_finished_cells_are_not_changed(tmp_path, parts, stopped_sweep):
    cells, out = parts
    shutil.copytree(stopped_sweep, tmp_path / "out")
    assert main(["resume", str(tmp_path / "out"), "--json"]) == 0
    for cell in cells:
        np.testing.assert_array_equal(weights(tmp_path / "out" / cell.name), weights(out / cell.name))
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("**/*.*")}
    assert main(["resume", str(tmp_path / "out"), "--json"]) == 0
    for path in written:
        assert path.stat().st_mtime_ns == written[path], path


def test_a_cell_can_be_resumed_alone(tmp_path, parts, stopped_sweep):
    """Its folder contains only its own state, although the program of the group had that of all servers."""
    cells, out = parts
    shutil.copytree(stopped_sweep, tmp_path / "out")
    for cell in (cells[5], cells[9]):  # server Adagrad, server momentum
        assert main(["resume", str(tmp_path / "out" / cell.name), "--json"]) == 0
        np.testing.assert_allclose(weights(tmp_path / "out" / cell.name), weights(out / cell.name), rtol=1e-12)


def test_a_diverged_cell_is_recorded_and_does_not_stop_the_others(tmp_path):
    """Client SGD at rate 1e200 on a quadratic: the second step overflows float64."""
    text = 'task = "quadratic"\nrounds = 40\nlocal_steps = 3\nclient = {name = "sgd"}\ncorrection = "none"\n'
    with pytest.warns(UserWarning, match="not finite"):
        cells, out = sweep(text + "[sweep.product]\nclient.learning_rate = [0.001, 1e200]\n", tmp_path)
    fine, diverged = (read_run(out / cell.name) for cell in cells)
    assert fine.summary["status"] == "finished" and fine.summary["rounds"] == 40
    assert diverged.summary["status"] == "diverged" and diverged.summary["totals"]["skipped_rounds"] >= 10


def test_a_sweep_with_a_cell_that_had_diverged_before_it_was_stopped_resumes(tmp_path):
    """Its last lines have no loss: null in the file."""
    text = 'task = "quadratic"\nrounds = 60\nlocal_steps = 3\nclient = {name = "sgd"}\ncorrection = "none"\n'
    (tmp_path / "s.toml").write_text(
        text + "checkpoint_every = 20\n[sweep.product]\nclient.learning_rate = [0.001, 1e200]\n"
    )
    cells, found = prepare(tmp_path / "s.toml", tmp_path / "out")
    stop = Stop()

    def after_the_tenth_skipped(name, lines):
        stop.signal = stop.signal or 2 * (len(lines) >= 20)

    with pytest.warns(UserWarning, match="not finite"), pytest.raises(Stopped):
        run_groups(found, tmp_path / "out", None, stop, after_the_tenth_skipped, nothing)
    assert main(["resume", str(tmp_path / "out")]) == 0
    statuses = [read_run(tmp_path / "out" / cell.name).summary["status"] for cell in cells]
    assert statuses == ["finished", "diverged"]


def test_the_table_of_cells_includes_those_that_diverged_before_an_evaluation(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    text = """
task = "synthetic_tags"
task_options = { clients = 12, words = 50, tags = 10 }
rounds = 12
cohort = 4
local_steps = 3
correction = "none"
client = { name = "sgd" }
[sweep.product]
client.learning_rate = [3e38, 1.0]
"""
    (tmp_path / "s.toml").write_text(text)
    with pytest.warns(UserWarning, match="not finite"):
        assert main(["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "diverged" in shown and "finished" in shown


@pytest.mark.slow
def test_clients_that_keep_state_share_a_program_only_with_the_same_parts(tmp_path):
    text = 'task = "quadratic"\nrounds = 6\nlocal_steps = 2\nclient_state = "inherit"\ncheckpoint_every = 2\n'
    varied = '[sweep.product]\nclient.learning_rate = [0.01, 0.02]\nclient.name = ["adam", "adagrad"]\n'
    cells, out = sweep(text + varied, tmp_path)
    assert [len(group) for _, group in groups(cells, tmp_path / "elsewhere")] == [2, 2]
    alone = tmp_path / "alone"
    assert main(["run", str(out / cells[0].name / "config.toml"), "--out", str(alone), "--json"]) == 0
    np.testing.assert_allclose(weights(out / cells[0].name), weights(alone), rtol=1e-12)


@pytest.mark.slow
def test_an_optimizer_with_matrices_shares_a_program_with_its_own_cells_only(tmp_path):
    """Four of Adagrad, four of Muon; corrections and learning rates differ within a program."""
    text = """
task = "synthetic_tags"
rounds = 2
cohort = 3
task_options = { clients = 6, words = 12, tags = 4, examples_per_client = 20 }
[sweep.product]
client.name = ["adagrad", "muon"]
client.learning_rate = [0.1, 0.02]
correction = ["none", "joint"]
"""
    cells, out = sweep(text, tmp_path)
    together = [
        [cell.config.method["client"]["name"] for cell in group] for _, group in groups(cells, tmp_path / "new")
    ]
    assert sorted(together) == [["adagrad"] * 4, ["muon"] * 4]
    muon = [cell for cell in cells if cell.config.method["client"]["name"] == "muon"]
    for cell in muon[::3]:
        alone = tmp_path / cell.name
        assert main(["run", str(out / cell.name / "config.toml"), "--out", str(alone), "--json"]) == 0
        for name, value in safetensors.numpy.load_file(alone / "model.safetensors").items():
            in_sweep = safetensors.numpy.load_file(out / cell.name / "model.safetensors")[name]
            np.testing.assert_allclose(in_sweep, value, rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(read_run(out / cell.name).rounds["bytes_up"], read_run(alone).rounds["bytes_up"])


@pytest.mark.slow
def test_float32_networks_agree_too(tmp_path):
    text = """
task = "synthetic_tags"
rounds = 3
cohort = 4
task_options = { clients = 12, words = 50, tags = 10 }
correction = "joint"
client = { name = "adagrad" }
[sweep.zip]
client.learning_rate = [0.1, 1.0]
server.learning_rate = [1.0, 0.3]
"""
    cells, out = sweep(text, tmp_path)
    for cell in cells:
        alone = tmp_path / cell.name
        assert main(["run", str(out / cell.name / "config.toml"), "--out", str(alone), "--json"]) == 0
        for name, value in safetensors.numpy.load_file(alone / "model.safetensors").items():
            together = safetensors.numpy.load_file(out / cell.name / "model.safetensors")[name]
            np.testing.assert_allclose(together, value, rtol=1e-4, atol=1e-6)


BASE = 'task = "quadratic"\nrounds = 1\nclient = {name = "sgd"}\n'


RANDOM = "[sweep.random]\nsamples = 2\nclient_rate = "


def cells_of(text: str, folder: Path):
    (folder / "s.toml").write_text(BASE + text)
    return read_sweep(folder / "s.toml")


def test_all_combinations_of_the_tables_are_cells(tmp_path):
    cells = cells_of(
        """
[sweep.product]
seed = [0, 1, 2]
[sweep.zip]
correction = ["none", "joint"]
server.learning_rate = [1.0, 0.5]
[sweep.random]
samples = 4
client.learning_rate = { log_uniform = [0.001, 0.1] }
cohort = [1, 2]
""",
        tmp_path,
    )
    assert len(cells) == 3 * 2 * 4 and len({cell.name for cell in cells}) == 24
    pairs = {(cell.config.method["correction"], cell.config.method["server"]["learning_rate"]) for cell in cells}
    assert pairs == {("none", 1.0), ("joint", 0.5)}
    rates = {cell.config.method["client"]["learning_rate"] for cell in cells}
    assert len(rates) == 4 and all(0.001 <= rate <= 0.1 for rate in rates)
    assert {cell.config.cohort for cell in cells} <= {1, 2}


def test_draws_are_the_same_every_time_and_differ_by_their_seed(tmp_path):
    drawn = "[sweep.random]\nsamples = 3\ndraw_seed = {}\nclient.learning_rate = {{ uniform = [0.0, 1.0] }}\n"
    rates = [
        [cell.config.method["client"]["learning_rate"] for cell in cells_of(drawn.format(seed), tmp_path)]
        for seed in (0, 0, 1)
    ]
    assert rates[0] == rates[1] != rates[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "varies nothing"),
        ("[sweep.product]\nclient.learning_rate = 0.1\n", "client.learning_rate varies over a list"),
        ("[sweep.produkt]\nseed = [0]\n", "did you mean 'product'"),
        ("[sweep.product]\nsede = [0]\n", "did you mean 'seed'"),
        ("[sweep.zip]\nseed = [0, 1]\ncohort = [1]\n", "differ in length: 1, 2"),
        ("[sweep.random]\nseed = [0]\n", "samples must be an integer"),
        (
            "[sweep.random]\nsamples = 2\nclient.learning_rate = { normal = [0, 1] }\n",
            "has no learning_rate.normal",
        ),
        ("[sweep.product]\nclient.learning_rate = [-1.0]\n", "learning_rate must be a finite number"),
        ('[sweep.product]\ncorrection = ["jiont"]\n', "did you mean 'joint'"),
        ("[sweep.product]\ncohort = [1, 3]\n", "cohort must be an integer of at least 1 and at most 2, not 3"),
        ("[sweep.product]\nlocal_steps = [[1, 2], [1, 2, 3]]\n", "local_steps has 3 entries for 2 clients"),
        ("[sweep.product]\nrate_multipliers = [[1.0, 2.0], [1.0]]\n", "rate_multipliers has 1 entries for 2 clients"),
        ("[sweep.product]\nrounds = [1, 0]\n", "rounds must be an integer of at least 1, not 0"),
        ("[sweep.product]\nseed = [0, -1]\n", "seed must be an integer of at least 0"),
        ("[sweep.product]\nlanes = [1, 0]\n", "lanes must be an integer of at least 1, not 0"),
        ('[sweep.product]\ndispatch = ["round", "step"]\n', "dispatch 'step' is for single runs"),
        ('[sweep.product]\nstart = ["nowhere.safetensors"]\n', "nowhere.safetensors does not exist"),
        ("[sweep.product]\nevaluate_every = [1, 0]\n", "evaluate_every must be an integer of at least 1, not 0"),
        ("sweep = 3\n", "s.toml: sweep takes a table, e.g. [sweep.product] seed = [0, 1], not 3"),
        ("[sweep]\nproduct = 3\n", "s.toml: sweep.product takes a table"),
        ("[sweep]\nzip = [1]\n", "s.toml: sweep.zip takes a table"),
        (
            '[sweep]\ncells = ["a"]\n',
            "s.toml: sweep.cells takes tables, e.g. [[sweep.cells]] client_rate = 0.1, not ['a']",
        ),
        (RANDOM + "{ uniform = [2] }\n", "client_rate: uniform takes two numbers, the lower first"),
        (RANDOM + "{ uniform = [2, 1] }\n", "client_rate: uniform takes two numbers, the lower first"),
        (RANDOM + '{ log_uniform = ["a", 1] }\n', "client_rate: log_uniform takes two numbers above 0"),
        (RANDOM + "{ log_uniform = [0, 1] }\n", "client_rate: log_uniform takes two numbers above 0"),
        (RANDOM + '[0.1]\ndraw_seed = "a"\n', "sweep.random.draw_seed must be an integer of at least 0, not 'a'"),
        ("[sweep.product]\nclient = [3]\n", "s.toml: client takes a name"),
        ("[sweep.product]\nclient.learning_rate = [true]\n", "s.toml: client.learning_rate takes a number"),
        ("[[sweep.cells]]\nlabel = 3\n", "s.toml: label takes str, not 3"),
        ('[sweep.product]\ntask = ["quadratic"]\n', "s.toml: a task is given once"),
        ('[[sweep.cells]]\n[[sweep.cells]]\nearly_stop = "test.loss"\n', "split 'test' is not known"),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line(tmp_path, capsys, text, said):
    (tmp_path / "s.toml").write_text(BASE + text)
    assert main(["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_folder_of_another_sweep_is_refused(tmp_path):
    sweep(BASE + "[sweep.product]\nseed = [0]\n", tmp_path)
    with pytest.raises(ValueError, match="holds another sweep"):
        sweep(BASE + "[sweep.product]\nseed = [1]\n", tmp_path)


def test_many_processes_can_start_cells_of_one_sweep_at_the_same_time(tmp_path):
    """Each copies the sweep's file to the folder; all write the same bytes and must not disturb each other."""
    text, together = bytes(1_000_000), Barrier(8)

    def keep(_):
        together.wait()
        write_atomically(tmp_path / "kept", text)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(keep, range(8)))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_bytes() == text


def test_only_cells_whose_names_match_are_trained(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(BASE + "[sweep.product]\nseed = [0, 1]\nclient.learning_rate = [0.1, 0.2]\n")
    words = ["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"), "--json", "--cells"]
    assert main([*words, "*seed=1-client=0.2"]) == 0
    assert [path.parent.name for path in (tmp_path / "out").glob("*/summary.json")] == ["003-seed=1-client=0.2"]
    assert main([*words, "seed=7"]) == 2
    assert "no cell" in capsys.readouterr().err


def test_a_sweep_file_is_not_a_run(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(BASE + "[sweep.product]\nseed = [0]\n")
    assert main(["run", str(tmp_path / "s.toml")]) == 2
    assert "is a sweep: fedtrue sweep" in capsys.readouterr().err


def test_settings_are_read_back_as_written(parts):
    """A cell's config.toml is its settings, to the last digit."""
    cells, out = parts
    for cell in cells:
        kept = read_toml(out / cell.name / "config.toml")
        assert kept == resolved(cell.config, load_task(cell.config))


def test_the_number_of_epochs_can_differ_between_clients(tmp_path):
    """Drawn once from 1 to 20: a property of the federation, the same for every seed and method."""
    config = cells_of("local_epochs = [1, 20]\n[sweep.product]\nseed = [0, 1]\n", tmp_path)[0].config
    task = load_task(replace(config, task="synthetic_tags", task_options={"clients": 40}))
    steps = np.asarray(steps_of_clients(config, task))
    epochs = steps / task.steps_of_clients()
    np.testing.assert_array_equal(epochs, epochs.round())
    assert epochs.min() >= 1 and epochs.max() <= 20 and len(np.unique(epochs)) > 10
    np.testing.assert_array_equal(steps_of_clients(replace(config, seed=7), task), steps)
    for wrong in ([0, 3], [5, 2], [1, 2, 3]):
        with pytest.raises(ValueError, match="FEWEST,MOST"):
            steps_of_clients(replace(config, local_epochs=wrong), task)


def test_task_options_can_be_lists_of_lists(tmp_path):
    options = "task_options = { hessians = [[1.0, 2.0], [3.0, 4.0]], minima = [[0.0, 0.0], [1.0, 1.0]] }\n"
    varied = "[sweep.product]\nclient.learning_rate = [0.01, 0.02]\n"
    cells, out = sweep('task = "quadratic"\nrounds = 2\n' + options + varied, tmp_path)
    assert [len(group) for _, group in groups(cells, tmp_path / "elsewhere")] == [2]
    assert main(["table", str(out), "--json"]) == 0
