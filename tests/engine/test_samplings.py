"""Every sampling in the engine: the same cohorts on any lanes, from windows, with client memory; resumed and swept."""

import tomllib
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.methods import METHODS
from fedtrue.cli import main
from fedtrue.diagnosis.measure import Setting, measure_round
from fedtrue.engine import planning
from fedtrue.interface import OBJECTIVE
from fedtrue.precision import float64
from fedtrue.runner.records import METRICS, read_lines
from fedtrue.spec import FACTORIES, option_table
from tests.cases import quick

RNG = np.random.default_rng(7)
SIZES = (3, 1, 9, 4, 7, 2, 5, 8)
ROWS = [RNG.normal(size=(size, 2)).astype(np.float32) for size in SIZES]
SAMPLINGS = {
    "poisson": "poisson",
    "cyclic": "cyclic(groups=2)",
    "power_of_choice": "power_of_choice(candidates=5, batches=1)",
    "optimal": "optimal(share=0.5)",
    "importance": "importance(deviations=0.3)",
}

SAMPLING_METHODS = {name: build for name, build in METHODS.items() if "sampling" in option_table(build)}


def task():
    loss = lambda params, example: jnp.sum((params - example["x"]) ** 2)
    return ft.tasks.from_arrays([{"x": rows} for rows in ROWS], lambda key: jnp.ones(2), loss, batch_size=2)


def fedopt(name, **options):
    return ft.fedopt(ft.client.adagrad(0.1), sampling=SAMPLINGS.get(name, name), **options)


def run(method, rounds=5, **settings):
    simulation = ft.Simulation(task(), method, **{"cohort": 3, "seed": 4, **settings})
    state = simulation.start()
    for count in (1, rounds - 1):
        state, infos = simulation.run(state, count)
    return jax.tree.map(np.asarray, state.server), infos, simulation


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(SAMPLINGS, "poisson", "power_of_choice", "optimal"))
def test_lanes_do_not_change_who_takes_part(name):
    (server, infos, _), *others = (run(fedopt(name), lanes=lanes) for lanes in (1, 2, 8))
    for other, other_infos, _ in others:
        np.testing.assert_array_equal(other_infos.cohort, infos.cohort)
        np.testing.assert_array_equal(other_infos.clients, infos.clients)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), other, server)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_cohorts_of_all_sizes_run_through_one_program(name):
    assert run(fedopt(name))[2]._run.compilations == 1


@pytest.mark.parametrize("name", SAMPLINGS)
def test_data_on_the_host_gives_the_bits_of_data_on_the_device(name):
    """Also where clients are chosen by their losses: the candidates are known in advance."""
    on_device, on_host = (run(fedopt(name), data_on_device=wanted) for wanted in (True, False))
    assert on_host[2].plan.data_on_host
    assert_same(on_host[:2], on_device[:2])


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(SAMPLINGS, "poisson", "power_of_choice"))
def test_memory_on_the_host_gives_the_bits_of_memory_on_the_device(name):
    method = ft.methods.scaffold(ft.client.sgd(0.05), sampling=SAMPLINGS[name])
    on_device, on_host = (run(method, memory_on_device=wanted) for wanted in (True, False))
    assert on_host[2].plan.memory_on_host
    assert_same(on_host[:2], on_device[:2])


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(SAMPLINGS, "optimal"))
def test_single_steps_give_the_rounds_of_one_program(name):
    (together, infos, _), (single, own, _) = (run(fedopt(name), dispatch=way) for way in ("round", "step"))
    np.testing.assert_array_equal(infos.cohort, own.cohort)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), together, single)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_servers_control_variate_is_the_mean_of_the_clients(name):
    """SCAFFOLD's c = Σ p_i c_i, whoever takes part and however the mean of the updates is weighted."""
    method = ft.methods.scaffold(ft.client.sgd(0.05), sampling=SAMPLINGS[name])
    simulation = ft.Simulation(task(), method, cohort=3)
    state, infos = simulation.run(simulation.start(), 6)
    controls = np.asarray(state.memory[-1]["rule"])
    shares = np.asarray(simulation.federation.weights[OBJECTIVE])
    np.testing.assert_allclose(state.server.shared, shares @ controls, rtol=1e-5, atol=1e-6)
    never = np.setdiff1d(np.arange(len(SIZES)), infos.cohort)
    assert (controls[never] == 0).all()


def test_a_client_that_trained_and_did_not_upload_keeps_what_it_had():
    method = ft.methods.scaffold(ft.client.sgd(0.05), sampling="optimal(share=0.3)")
    simulation = ft.Simulation(task(), method, cohort=8)
    state, info = simulation.round(simulation.start())
    assert (np.asarray(state.memory[-1]["rule"]) != 0).any(axis=1).sum() == int(info.clients) < 8


@pytest.mark.parametrize("name", ["poisson", "cyclic", "optimal", "power_of_choice"])
def test_the_server_of_feddyn_follows_its_clients(name):
    """s = Σ p_i h_i: needs sums that are not estimated, so some samplings need clients that send them."""
    weighting = "uniform" if name in ("optimal", "power_of_choice") else None
    method = ft.methods.feddyn(ft.client.sgd(0.05), sampling=SAMPLINGS[name], weighting=weighting)
    simulation = ft.Simulation(task(), method, cohort=3)
    state, _ = simulation.run(simulation.start(), 6)
    own = np.asarray(state.memory[-1]["rule"])
    shares = np.asarray(simulation.federation.weights[OBJECTIVE])
    np.testing.assert_allclose(state.server.optimizer, shares @ own, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["optimal", "power_of_choice", "importance"])
def test_a_server_that_follows_its_clients_by_their_mean_update_is_refused(name):
    method = ft.methods.feddyn(ft.client.sgd(0.05), sampling=SAMPLINGS[name])
    with pytest.raises(ValueError, match=f"'{name}' weighs otherwise: give feddyn a weighting"):
        ft.Simulation(task(), method, cohort=3)


# Every method with one of the samplings in turn; those with a client memory and with two phases with all of them.
PAIRS = {f"{name}-{sampling}": (name, sampling) for name, sampling in zip(SAMPLING_METHODS, cycle(SAMPLINGS))}
PAIRS |= {f"{name}-{sampling}": (name, sampling) for name in ("scaffold", "mime") for sampling in SAMPLINGS}


@pytest.mark.parametrize("pair", quick(PAIRS, "mime-power_of_choice", "mime-optimal"))
def test_methods_train_with_the_samplings(pair):
    name, sampling = PAIRS[pair]
    takes = option_table(METHODS[name])
    rate = {"client_rate": 0.05} if "client_rate" in takes else {"client": ft.client.sgd(0.05)}
    weighting = {"weighting": "uniform"} if name == "feddyn" else {}
    method = METHODS[name](**rate, **weighting, sampling=SAMPLINGS[sampling])
    result = ft.train(task(), method, rounds=6, cohort=4, local_steps=2, lanes=2)
    assert np.isfinite(result.params).all() and not np.array_equal(result.params, np.ones(2))


@pytest.mark.filterwarnings("error")
def test_an_empty_cohort_changes_nothing_and_is_not_a_divergence():
    """q = 1/8: a third of the rounds, (7/8)⁸ = 0.34, has nobody."""
    for lanes in (1, 4):
        result = ft.train(task(), fedopt("poisson"), rounds=60, cohort=1, lanes=lanes)
        empty = result.history["clients"] == 0
        assert 8 < empty.sum() < 35 and result.summary["status"] == "finished"
        assert (result.history["bytes_up"][empty] == 0).all() and (result.history["steps"][empty] == 0).all()
        assert np.isnan(result.history["loss"][empty]).all()
    simulation = ft.Simulation(task(), fedopt("poisson", server=ft.server.adam(0.1)), cohort=1)
    first_empty = int(np.flatnonzero(empty)[0])
    state = simulation.run(simulation.start(), first_empty)[0] if first_empty else simulation.start()
    before = jax.tree.map(np.array, state.server)
    assert_same(jax.tree.map(np.asarray, simulation.round(state)[0].server), before)


def first_round(sampling):
    simulation = ft.Simulation(task(), fedopt(sampling, correction="none"), cohort=4, seed=4)
    return simulation.round(simulation.start())[1]


def test_a_poisson_round_divides_by_the_expected_weight():
    """Σ_S w_i u_i / (q Σ w_i) is the mean over the cohort times Σ_S w_i / (q Σ w_i)."""
    expected, own = first_round("poisson"), first_round("poisson(fixed_denominator=false)")
    np.testing.assert_array_equal(expected.cohort, own.cohort)
    w, drawn = np.array(SIZES) / sum(SIZES), expected.cohort[expected.cohort >= 0]
    ratio = w[drawn].sum() / (4 / 8)
    assert float(expected.pseudo_gradient_norm) == pytest.approx(ratio * float(own.pseudo_gradient_norm), rel=1e-5)


def test_privacy_code_can_rely_on_a_rate_and_independent_draws():
    sampling = fedopt("poisson").sampling
    assert sampling.rate(1000, 10) == 0.01 and sampling.fixed_denominator
    others = [FACTORIES["sampling"][name]() for name in FACTORIES["sampling"] if name != "poisson"]
    assert all(other.rate is None for other in others)


def test_metrics_of_a_round_are_over_all_clients_that_trained():
    chosen, everyone = (run(fedopt(name), rounds=2)[1] for name in ("optimal", "uniform"))
    np.testing.assert_array_equal(chosen.cohort, everyone.cohort)
    assert_same(jax.tree.leaves(chosen.metric_sums)[-1], jax.tree.leaves(everyone.metric_sums)[-1])  # counts


def test_a_sampling_with_a_state_needs_a_method_that_has_a_place_for_it():
    built = fedopt("importance")
    bare = Method(
        init=lambda params: built.init(params)._replace(sampling=()),
        phases=built.phases,
        sampling=built.sampling,
        weighting=None,
        learning_rate=built.learning_rate,
    )
    with pytest.raises(ValueError, match=r"'importance' keeps a state at the server.*ft\.interface\.federated"):
        ft.Simulation(task(), bare, cohort=3)


def test_updates_that_do_not_fit_until_it_is_known_who_uploads_are_refused(monkeypatch):
    monkeypatch.setattr(planning, "free_bytes", lambda device: 20)
    with pytest.raises(ValueError, match=r"'optimal' holds the updates of the whole cohort.*use a smaller cohort"):
        ft.Simulation(task(), fedopt("optimal"), cohort=3)


# --- records, resuming, sweeps ----------------------------------------------------------------------------------------

HESSIANS = [[1.0], [2.0], [3.0], [1.5], [2.5], [1.0]]
MINIMA = [[0.0], [1.0], [2.0], [-3.0], [4.0], [9.0]]
SETTINGS = f"""
task = "quadratic"
task_options.hessians = {HESSIANS}
task_options.minima = {MINIMA}
cohort = 3
local_steps = 2
client = "adam"
client_rate = 0.05
"""


@pytest.mark.parametrize("name", quick(SAMPLINGS, "poisson", "importance"))
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(name, tmp_path):
    (tmp_path / "six.toml").write_text(SETTINGS)
    common = ["run", str(tmp_path / "six.toml"), "--sampling", SAMPLINGS[name], "--rounds", "9"]
    common += ["--checkpoint-every", "4", "--json"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        assert main([*common, "--out", str(folder)]) == 0
    for left in ("checkpoints/00000009.json", "checkpoints/00000009.safetensors", "summary.json"):
        (parts / left).unlink()
    assert main(["resume", str(parts)]) == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    one, other = ([line["cohort"] for line in read_lines(folder / METRICS)] for folder in (whole, parts))
    assert one == other
    config = tomllib.loads((whole / "config.toml").read_text())
    assert config["sampling"]["name"] == name
    method = ft.from_spec({"name": config["method"], "client": "adam(0.05)", "sampling": config["sampling"]})
    assert method.sampling == ft.from_spec(SAMPLINGS[name], "sampling")  # the record builds it again


SWEEPS = {
    "sampling": '[{ name = "optimal", share = 0.3 }, { name = "optimal", share = 0.6 }]',
    '"sampling.candidates"': "[3, 5]",
}


@pytest.mark.slow
@pytest.mark.parametrize("option", quick(SWEEPS, "sampling"))
def test_cells_of_a_sweep_over_samplings_are_the_runs_alone(option, tmp_path):
    first = 'sampling = "power_of_choice"\n' if "candidates" in option else ""
    grid = f"[sweep.product]\n{option} = {SWEEPS[option]}\nclient_rate = [0.05, 0.1]\n"
    (tmp_path / "sweep.toml").write_text(f"rounds = 5\n{SETTINGS}{first}{grid}")
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--json"]) == 0
    cells = [path.parent for path in sorted((tmp_path / "out").glob("*/config.toml"))]
    ends = []
    for cell in cells:
        alone = tmp_path / "alone" / cell.name
        assert main(["run", str(cell / "config.toml"), "--out", str(alone), "--json"]) == 0
        ours, theirs = (ft.load_run(path).params for path in (cell, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        ends.append(tuple(ours))
    assert len(set(ends)) == len(cells)


def test_diagnosis_knows_poisson_and_refuses_what_has_no_probability():
    problem = ft.tasks.quadratic(HESSIANS, MINIMA, weights=[1.0, 2.0, 3.0, 1.0, 1.0, 1.0])

    def pieces_of(name):
        method = ft.fedopt(ft.client.sgd(0.05), correction="none", sampling=name)
        with float64():
            server = method.init(problem.init(None))
        return measure_round(problem, method, server, lambda client: (), 0, Setting(3, 2), orders=1).numbers.pieces

    poisson, uniform = pieces_of("poisson"), pieces_of("uniform")
    for piece in ("weighting", "bias", "drift"):
        assert poisson[piece].norm == pytest.approx(uniform[piece].norm)
    assert poisson["cohorts"].norm == pytest.approx(0, abs=1e-9)  # divided by a constant
    assert uniform["cohorts"].norm > 1e-4  # by the weight of the cohort, where weights differ
    for name in ("cyclic", "power_of_choice", "optimal", "importance"):
        with pytest.raises(ValueError, match=f"sampling '{name}' has no fixed probability per client"):
            pieces_of(name)
