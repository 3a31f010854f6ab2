"""Compression, robust aggregation and noise in the engine: lanes, memory on the host, resuming, sweeps, records."""

import json
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.methods import METHODS
from fedtrue.algorithm.upload import DESCRIPTIONS
from fedtrue.cli import main
from fedtrue.runner.records import read_run
from fedtrue.spec import option_table
from tests.cases import quick, samples_clients

RNG = np.random.default_rng(7)
ROWS = [RNG.normal(size=(size, 2)).astype(np.float32) for size in (3, 1, 9, 4, 7, 2, 5, 8)]
UPLOADS = {
    "sparse": {"compression": "top_k(share=0.5)"},
    "rounded": {"compression": "quantize(bits=4)"},
    "robust": {"aggregator": "median", "attack": "random(share=0.25)"},
    "private": {"privacy": "gaussian(clip=0.5, noise=0.5)", "sampling": "poisson", "weighting": "uniform"},
    "local": {"privacy": "gaussian(clip=0.5, noise=0.5, place=client)"},
}


def task():
    loss = lambda params, example: jnp.sum((params - example["x"]) ** 2)
    return ft.tasks.from_arrays([{"x": rows} for rows in ROWS], lambda key: jnp.ones(2), loss, batch_size=2)


def run(name, **settings):
    method = ft.fedopt(ft.client.adagrad(0.1), **UPLOADS[name])
    simulation = ft.Simulation(task(), method, **{"cohort": 3, "seed": 4, **settings})
    state, _ = simulation.run(simulation.start(), 1)
    state, _ = simulation.run(state, 3)
    return jax.tree.map(np.asarray, state.server), simulation


@pytest.mark.parametrize("name", quick(UPLOADS, "sparse", "robust", "private"))
def test_the_result_does_not_depend_on_the_number_of_lanes(name):
    (one, _), (many, simulation) = (run(name, lanes=lanes) for lanes in (1, 3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), many, one)
    assert simulation._run.compilations == 1


def test_unsent_parts_on_the_host_give_the_bits_of_those_on_the_device():
    (on_device, _), (on_host, simulation) = (run("sparse", memory_on_device=wanted) for wanted in (True, False))
    assert simulation.plan.memory_on_host
    jax.tree.map(np.testing.assert_array_equal, on_host, on_device)


@pytest.mark.slow
def test_single_steps_give_the_rounds_of_one_program():
    (together, _), (single, _) = (run("robust", dispatch=way) for way in ("round", "step"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), together, single)


NO_CLIPPING = {"scaffold", "feddyn", "fedpd", "fedsplit", "fadamgc"}  # the server follows what clients keep
NO_CLIPPING |= {"adaalter", "fedlada", "fedadamw", "sync_momentum", "fednova"}  # clients send states


@pytest.mark.parametrize("name", quick(METHODS, "mime", "scaffold", "feddyn"))
def test_every_method_takes_every_part(name):
    """Those of the way up that need no sampling of their own, all in one run; some refuse to clip."""
    takes = option_table(METHODS[name])
    assert set(DESCRIPTIONS) <= set(takes)
    rate = {"client_rate": 0.05} if "client_rate" in takes else {"client": ft.client.sgd(0.05)}
    parts = {**UPLOADS["sparse"], **UPLOADS["robust"]}
    if name not in NO_CLIPPING:
        parts["privacy"] = "gaussian(clip=1)"
    cohort = 5 if samples_clients(name) else len(ROWS)  # of which 2 are hostile at most
    result = ft.train(task(), METHODS[name](**rate, **parts), rounds=4, cohort=cohort, local_steps=2, lanes=2)
    assert np.isfinite(result.params).all() and not np.array_equal(result.params, np.ones(2))
    assert result.history["dropped"].sum() == 0


def flags(options):
    return [text for key, value in options.items() for text in (f"--{key}", value)]


@pytest.mark.parametrize("name", ["sparse", "private"])
def test_it_resumes_bit_for_bit(name, tmp_path):
    common = ["run", "quadratic", "--cohort", "1", "--local-steps", "2", *flags(UPLOADS[name])]
    common += ["--set", "task_options.noise=0.3", "--checkpoint-every", "4", "--json"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        assert main([*common, "--rounds", "9", "--out", str(folder)]) == 0
    for left in ("checkpoints/00000009.json", "checkpoints/00000009.safetensors", "summary.json"):
        (parts / left).unlink()
    assert main(["resume", str(parts)]) == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    lines = [json.loads(line) for line in (parts / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 9
    if name == "private":
        spent = ft.privacy.epsilon(0.5, 9, 0.5)
        assert (
            lines[-1]["epsilon"] == pytest.approx(spent) == json.loads((parts / "summary.json").read_text())["epsilon"]
        )


def test_a_sweep_compares_parts_with_their_absence(tmp_path):
    sweep = """
task = "quadratic"
rounds = 4
local_steps = 2
attack = "scaled(share=0.5, factor=0.1)"
[sweep.product]
compression = ["none", "top_k(share=0.5)", "qsgd(levels=2)"]
client_rate = [0.01, 0.02]
"""
    (tmp_path / "sweep.toml").write_text(sweep)
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    cells = [path.parent for path in sorted((tmp_path / "out").glob("*/config.toml"))]
    bytes_up = {}
    for cell in cells:
        config = tomllib.loads((cell / "config.toml").read_text())
        compression = config["compression"]
        name = compression if isinstance(compression, str) else compression["name"]
        bytes_up[name] = read_run(cell).rounds["bytes_up"][0]
    assert len(cells) == 6 and bytes_up["qsgd"] < bytes_up["top_k"] < bytes_up["none"]
    alone = tmp_path / "alone"
    assert main(["run", str(cells[-1] / "config.toml"), "--out", str(alone), "--json"]) == 0
    np.testing.assert_allclose(ft.load_run(alone).params, ft.load_run(cells[-1]).params, rtol=1e-12)


def test_diagnosis_and_theory_refuse_by_name(tmp_path, capsys):
    run = ["run", "quadratic", "--rounds", "1", "--compression", "sign", "--out", str(tmp_path / "run"), "--json"]
    assert main(run) == 0
    assert main(["diagnose", str(tmp_path / "run")]) == 2
    assert "and compression changes that: diagnose a run without it" in capsys.readouterr().err
    with pytest.raises(ValueError, match="and compression changes that: leave it out"):
        ft.theory.cohort_bias(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.01), compression="sign"), cohort=1)


def test_a_wrong_part_is_refused_in_one_line(capsys):
    assert main(["run", "quadratic", "--compression", "topk"]) == 2
    assert "top_k" in capsys.readouterr().err
    assert main(["run", "quadratic", "--privacy", "gaussian(clip=1, noise=1)"]) == 2
    assert "use sampling='poisson'" in capsys.readouterr().err
