"""Learning rates over the rounds: optax's schedules and ours, in Python, TOML, flags and sweeps."""

import tomllib

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedtrue as ft
from fedtrue.cli import main
from fedtrue.spec import FACTORIES, is_rebuildable, option_table

TASK = ft.tasks.quadratic(noise=1.0)
COSINE = {"name": "cosine", "initial": 0.01, "length": 8, "final": 0.0}


def run(client, server="sgd", **arguments):
    arguments = {"rounds": 8, "local_steps": [2, 5], **arguments}
    return ft.train(TASK, ft.fedopt(client, server=server), **arguments).params


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (ft.schedules.linear(0.3, 0.1, length=7), optax.linear_schedule(0.3, 0.1, 7)),
        (ft.schedules.cosine(0.3, length=7, final=0.03), optax.cosine_decay_schedule(0.3, 7, alpha=0.1)),
        (ft.schedules.exponential(0.3, factor=0.5, every=3), optax.exponential_decay(0.3, 3, 0.5)),
        (ft.schedules.piecewise([0.3, 0.03], [4]), optax.piecewise_constant_schedule(0.3, {4: 0.1})),
    ],
    ids=lambda schedule: getattr(schedule, "name", "optax"),
)
def test_a_named_schedule_has_the_values_of_optaxs(ours, theirs):
    rounds = [0, 1, 3, 5, 6, 7, 20]
    np.testing.assert_allclose([ours(r) for r in rounds], [theirs(jnp.int32(r)) for r in rounds], rtol=1e-6)


def test_an_optax_schedule_trains_as_the_named_one_and_is_recorded_as_not_rebuildable(tmp_path):
    theirs = ft.client.adam(optax.cosine_decay_schedule(0.01, 8))
    assert not is_rebuildable(ft.fedopt(theirs).spec)
    np.testing.assert_allclose(run(theirs, out=tmp_path / "run"), run(ft.client.adam(COSINE)), rtol=1e-6)
    assert "from_python = true" in (tmp_path / "run" / "config.toml").read_text()


def test_a_schedule_of_a_server_rate_counts_its_rounds():
    """Server rate 1, 1, then 0: the weights stay where they were after two rounds."""
    stopped = ft.server.sgd(ft.schedules.piecewise([1.0, 0.0], [2]))
    np.testing.assert_allclose(run(ft.client.sgd(0.01), stopped), run(ft.client.sgd(0.01), rounds=2), rtol=1e-12)


MEASURED_STEPS = ("delta_sgd",)  # its clients measure their step sizes; its rate is the first of them


@pytest.mark.parametrize("name", [name for name in FACTORIES["method"] if name not in MEASURED_STEPS])
def test_every_named_method_takes_a_schedule(name):
    takes_a_rate = "client_rate" in option_table(FACTORIES["method"][name])
    options = {"client_rate": COSINE} if takes_a_rate else {"client": {"name": "sgd", "learning_rate": COSINE}}
    method = ft.from_spec({"name": name, **options})
    assert ft.from_spec(method.spec) == method and float(method.learning_rate(4)) == pytest.approx(0.005)


def test_a_resumed_run_with_schedules_is_bit_identical_to_an_uninterrupted_one(tmp_path):
    client = ft.client.adam(COSINE, within_round={"name": "linear", "initial": 1.0, "final": 0.1}, clip_norm=5.0)
    whole = run(client)
    run(client, rounds=3, out=tmp_path / "run")
    np.testing.assert_array_equal(run(client, out=tmp_path / "run", resume=True), whole)


def test_a_schedule_is_written_as_a_flag_recorded_in_toml_and_rebuilt_from_it(tmp_path):
    flags = "--client sgd --client-rate warmup(cosine(0.01,8),2) --server-rate exponential(1,0.5) --local-steps 2,5"
    out = tmp_path / "run"
    further = ["--set", "client.learning_rate.schedule.final=0.001", "--set", "client.clip_norm=3"]
    assert main(["run", "quadratic", *flags.split(), *further, "--rounds", "4", "--out", str(out)]) == 0
    config = tomllib.loads((out / "config.toml").read_text())
    cosine = {"name": "cosine", "initial": 0.01, "length": 8, "final": 0.001}
    assert config["client"]["learning_rate"] == {"name": "warmup", "schedule": cosine, "length": 2}
    assert config["client"]["clip_norm"] == 3
    assert config["server"]["learning_rate"] == {"name": "exponential", "initial": 1, "factor": 0.5, "every": 1.0}
    assert main(["run", str(out / "config.toml"), "--out", str(tmp_path / "again")]) == 0
    weights = [ft.load_run(folder).params for folder in (out, tmp_path / "again")]
    np.testing.assert_array_equal(*weights)


@pytest.mark.slow
def test_cells_of_a_sweep_over_a_schedules_numbers_are_the_runs_alone(tmp_path):
    (tmp_path / "s.toml").write_text(
        'task = "quadratic"\nrounds = 6\nlocal_steps = [2, 5]\n'
        '[client]\nname = "adam"\nlearning_rate = { name = "cosine", initial = 0.1, length = 6 }\n'
        "[sweep.product]\nclient.learning_rate.initial = [0.1, 0.2]\nclient.learning_rate.length = [3, 6]\n"
        "[sweep.zip]\nclient.clip_norm = [1.0, 4.0]\nclient.weight_decay = [0.0, 0.5]\n"
    )
    cells = ft.sweep(tmp_path / "s.toml", tmp_path / "out")
    assert len(cells) == 8
    for cell in (cells[0], cells[5]):
        alone = ft.from_spec({"name": "fedopt", "client": cell.config["client"]})
        expected = ft.train(ft.tasks.quadratic(), alone, rounds=6, local_steps=[2, 5]).params
        np.testing.assert_allclose(cell.params, expected, rtol=1e-10)


@pytest.mark.slow
def test_cells_with_and_without_options_share_a_program(tmp_path):
    (tmp_path / "s.toml").write_text(
        'task = "quadratic"\nrounds = 4\nlocal_steps = [2, 5]\n'
        '[[sweep.cells]]\nclient = { name = "adam", learning_rate = 0.1 }\n'
        '[[sweep.cells]]\nclient = { name = "sgd", learning_rate = "cosine(0.01, 4)", clip_value = 2.0 }\n'
        '[[sweep.cells]]\nclient = { name = "adagrad", learning_rate = 0.1, weight_decay = 0.1, '
        'within_round = "linear(1.0, 0.5)" }\n'
    )
    for cell in ft.sweep(tmp_path / "s.toml", tmp_path / "out"):
        alone = ft.from_spec({"name": "fedopt", "client": cell.config["client"]})
        expected = ft.train(ft.tasks.quadratic(), alone, rounds=4, local_steps=[2, 5]).params
        np.testing.assert_allclose(cell.params, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "text, said",
    [
        ("cosin(0.1, 5)", r"schedule 'cosin' is not known \(did you mean 'cosine'"),
        ("cosine(0.1)", r"cosine needs its length in rounds: give it, e.g. cosine\(…, length=500\)"),
        ("cosine(0.1, 5, 0, 7)", "has too many values: cosine takes initial, length, final"),
        ("cosine(0.1, 5, initial=3)", "gives initial twice"),
        ("cosine(0.1, 5, len=3)", r"cosine has no len \(did you mean 'length'\?\)"),
        ("cosine(0.1, 0)", "cosine: length must be a finite number above 0, not 0"),
        ("cosine(0.1", r"is not NAME\(VALUE, OPTION=VALUE, …\)"),
        ("piecewise([0.1], [2])", "1 values and 1 boundaries: give one value more"),
        ("piecewise([0.1, 0.2, 0.3], [4, 2])", "boundaries must increase"),
        ("linear(0.1, x.y, 3)", "x.y in .* is not a value"),
        ("cosine", "schedule 'cosine' needs initial"),
    ],
)
def test_a_wrong_schedule_is_refused_in_one_line(text, said):
    with pytest.raises(ValueError, match=said):
        ft.client.sgd(text)
