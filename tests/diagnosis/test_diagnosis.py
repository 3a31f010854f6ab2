"""Diagnosis agrees with the closed forms, with the measurements of fedtrue.theory, and with the next round."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import build_parser, main
from fedtrue.diagnosis.measure import CLIENTS, ORDERS, Setting, measure_round
from fedtrue.diagnosis.verdict import judge
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner import checkpoint, folder
from fedtrue.runner.build import build_method, load_task
from fedtrue.runner.diagnose_run import diagnose_run as measure
from fedtrue.runner.records import METRICS, read_lines
from fedtrue.runner.settings import RunConfig, change
from fedtrue.theory import cohort_bias, measured_fixed_point, pseudo_gradient, shrinkage

HESSIANS = np.array([[1.0, 30.0], [20.0, 1.0], [4.0, 4.0]])
MINIMA = np.array([[2.0, 1.0], [-1.0, -2.0], [0.0, 3.0]])
STEPS = np.array([2, 30, 5])
X = np.array([1.0, -0.5])
RATE = 1e-3
SLOW = pytest.mark.slow


def quadratic_run(correction="none", client="sgd", start=X, rate=RATE, options=None, client_options=None, **settings):
    """The settings of a run on three quadratics that starts at `start`."""
    problem = {"hessians": HESSIANS.tolist(), "minima": MINIMA.tolist(), "start": np.asarray(start).tolist()}
    part = {"name": client, "learning_rate": rate, **(client_options or {})}
    parts = {"client": part, "correction": correction, "local_steps": STEPS.tolist(), **settings}
    return change(RunConfig("quadratic", task_options={**problem, **(options or {})}), parts, "test")


def diagnosed(path, config, **how):
    """The diagnosis of a run whose only checkpoint is its start."""
    task = load_task(config)
    folder.make(path, config.settings())
    with float64(task.float64):
        simulation = Simulation(task, build_method(config, task), seed=config.seed)
        nobody = np.arange(0)
        checkpoint.save(path / "checkpoints", 0, simulation.on_host(simulation.start(), nobody), nobody)
    return measure(path, **{"orders": 1, **how})


def fixed_point(config):
    """The same run, at its method's fixed point."""
    task = load_task(config)
    found = measured_fixed_point(task, build_method(config, task), config.local_steps).params
    return replace(config, task_options={**config.task_options, "start": found.tolist()})


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_client_sgd_on_quadratics_matches_the_closed_form(tmp_path):
    w, gamma = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, 2.0])
    config = quadratic_run(options={"weights": w.tolist()}, rate_multipliers=gamma.tolist())
    found = diagnosed(tmp_path / "run", config)
    g = HESSIANS * (X - MINIMA)  # ∇F_i = H_i (x − x_i*)
    moved = w @ ((1 - (1 - RATE * gamma[:, None] * HESSIANS) ** STEPS[:, None]) * (X - MINIMA))  # Σ w (I − K)(x − x*)
    n = gamma * STEPS
    bias = RATE * (w * (n - w @ n)) @ g  # η Σ w (N_i − N̄) ∇F_i
    truth = RATE * (w @ n) * (w @ g)
    numbers = found.numbers
    assert numbers.gradient_norm == pytest.approx(np.linalg.norm(w @ g), rel=1e-12)
    assert numbers.client_gradient_norm == pytest.approx(np.sqrt(w @ (g**2).sum(axis=1)), rel=1e-12)
    assert numbers.pseudo_gradient_norm == pytest.approx(np.linalg.norm(moved), rel=1e-10)
    assert numbers.cosine == pytest.approx(cosine(moved, w @ g), rel=1e-10)
    assert found.client_weights == pytest.approx(n, rel=1e-12)
    assert numbers.truth == pytest.approx(np.linalg.norm(truth), rel=1e-12)
    assert numbers.pieces["bias"].norm == pytest.approx(np.linalg.norm(bias), rel=1e-10)
    assert numbers.pieces["bias"].along == pytest.approx(bias @ truth / (truth @ truth), rel=1e-10)
    drift = moved - truth - bias
    assert numbers.pieces["drift"].norm == pytest.approx(np.linalg.norm(drift), rel=1e-8)
    assert numbers.pieces["noise"].norm == pytest.approx(0, abs=1e-15)
    assert numbers.left == pytest.approx(moved @ truth / (truth @ truth), rel=1e-10)


def test_the_implicit_weights_of_adagrad_are_the_sums_of_its_preconditioners_at_x(tmp_path):
    hessians, minima = [[1.0], [2.0], [3.0]], [[0.0], [4.0], [-1.0]]
    config = quadratic_run("joint", "adagrad", [1.0], options={"hessians": hessians, "minima": minima})
    found = diagnosed(tmp_path / "run", config)
    gradients = [1.0, -6.0, 6.0]  # h (x − x*)
    n = [sum(1 / (np.sqrt(0.1 + k * g**2) + 1e-7) for k in range(1, t + 1)) for g, t in zip(gradients, STEPS)]
    assert found.client_weights == pytest.approx(n, rel=1e-12)
    assert found.numbers.truth == pytest.approx(RATE / np.mean(1 / np.array(n)) / 3, rel=1e-12)  # η N̄ ∇F, ∇F = 1/3
    assert found.numbers.pieces["bias"].norm == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("client", "correction", "trace"),
    [
        ("adam", "none", "exact"),
        ("adam", "joint", "paper"),
        ("adagrad", "local", "exact"),
        pytest.param("yogi", "joint", "exact", marks=SLOW),
    ],
)
def test_the_pseudo_gradient_of_full_participation_equals_the_theorys(tmp_path, client, correction, trace):
    config = quadratic_run(correction, client, trace=trace, options={"noise": 0.5})
    task = load_task(config)
    with float64():
        expected = jax.jit(pseudo_gradient(task, build_method(config, task), config.local_steps))(jnp.asarray(X), 0)
    numbers = diagnosed(tmp_path / "run", config).numbers
    assert numbers.pseudo_gradient_norm == pytest.approx(np.linalg.norm(np.asarray(expected)), rel=1e-10)
    assert numbers.cosine == pytest.approx(cosine(np.asarray(expected), (HESSIANS * (X - MINIMA)).mean(axis=0)))


@pytest.mark.parametrize("client", ["sgd", "adagrad"])
def test_at_an_uncorrected_fixed_point_the_bias_cancels_the_true_gradient_and_joint_is_recommended(tmp_path, client):
    found = diagnosed(tmp_path / "run", fixed_point(quadratic_run("none", client, rate=1e-4)))
    verdict = judge(found)
    assert found.numbers.pieces["bias"].along == pytest.approx(-1, abs=0.05)
    assert found.numbers.left == pytest.approx(0, abs=1e-6)
    assert verdict.cause == "bias" and verdict.biased
    assert "non-vanishing bias" in verdict.sentence and "--correction joint" in verdict.sentence


def test_at_the_fixed_point_of_the_exact_joint_correction_both_gradients_vanish_and_no_bias_is_reported(tmp_path):
    found = diagnosed(tmp_path / "run", fixed_point(quadratic_run("joint", "adagrad", rate=1e-5)))
    numbers, verdict = found.numbers, judge(found)
    assert numbers.gradient_norm < 0.01 * numbers.client_gradient_norm
    assert numbers.pseudo_gradient_norm < 1e-9 * numbers.clients_scale
    assert not verdict.biased and verdict.sentence.startswith("No non-vanishing bias of note")


def test_drift_from_a_large_client_rate_is_reported_as_vanishing_with_it(tmp_path):
    verdict = judge(diagnosed(tmp_path / "run", fixed_point(quadratic_run("joint", "sgd", rate=5e-3))))
    assert verdict.cause == "drift" and not verdict.biased
    assert verdict.sentence.startswith("No non-vanishing bias") and "--client-rate 0.0005" in verdict.sentence


def test_the_papers_trace_is_detected_and_the_default_one_recommended(tmp_path):
    verdict = judge(diagnosed(tmp_path / "run", fixed_point(quadratic_run("joint", "adam", trace="paper"))))
    assert verdict.biased and "the paper's trace" in verdict.sentence and "--trace first_gradient" in verdict.sentence


def sparse_round(trace):
    """Two clients; every batch has a gradient in one weight, four of five in a client's own, one in a common one."""
    often, rarely = np.eye(3)[[0, 0, 0, 0, 1]], np.eye(3)[[2, 2, 2, 2, 1]]
    task = ft.tasks.from_arrays(
        [{"a": rows.astype(np.float32)} for rows in (often, 2 * rarely)],
        init=lambda key: jnp.zeros(3),
        loss=lambda x, example: example["a"] @ x,
        batch_size=1,
    )
    method = ft.fedopt(ft.client.adam(1e-3), correction="joint", trace=trace)
    server = method.init(jnp.zeros(3))
    return measure_round(task, method, server, lambda client: (), 0, Setting(), orders=200)


def test_the_share_of_the_gradient_that_is_absent_from_the_first_batch():
    """Squared gradients of a client: (4/5)² and (1/5)², the first in the first batch 4 times of 5; both scale by 2² in
    the other client. Absent: 4/5 · (1/5)² + 1/5 · (4/5)² of (4/5)² + (1/5)², which is (4 + 16)/85."""
    assert sparse_round("first_gradient").numbers.late_share == pytest.approx(20 / 85, abs=0.03)


def test_with_weights_that_are_absent_from_the_first_batch_the_exact_trace_is_detected():
    exact, default = (judge(sparse_round(trace)) for trace in ("exact", "first_gradient"))
    assert exact.cause == "bias" and "use --trace first_gradient" in exact.sentence
    assert default.cause != "bias"


def test_the_noise_piece_is_the_shrinkage_of_theory(tmp_path):
    one = {"hessians": [[1.0]] * 2, "minima": [[0.0]] * 2, "noise": 1.0}  # at x = 1: gradient 1, noise 1
    config = quadratic_run("local", "adagrad", [1.0], options=one, local_steps=10)
    piece = diagnosed(tmp_path / "run", config, orders=2000).numbers.pieces["noise"]
    left = shrinkage(ft.client.adagrad(1.0)).mean_of_ratios  # 0.861
    assert piece.along == pytest.approx(left - 1, abs=4 * piece.standard_error / RATE)
    assert piece.standard_error / RATE < 0.01


def test_a_lagged_preconditioner_removes_the_noise_piece_of_an_uncorrected_run(tmp_path):
    at = {"options": {"noise": 20.0}, "start": X}
    plain, lagged = (
        diagnosed(
            tmp_path / str(lagged),
            quadratic_run("none", "adagrad", client_options={"lagged": lagged, "initial_accumulator": 100.0}, **at),
            orders=1000,
        ).numbers.pieces["noise"]
        for lagged in (False, True)
    )
    assert plain.norm > 10 * plain.standard_error
    assert lagged.norm < 4 * lagged.standard_error


def test_noise_is_reported_as_the_cause_with_its_cure(tmp_path):
    three = {"hessians": [[1.0]] * 3, "minima": [[0.0], [0.0], [6.0]], "noise": 3.0}  # the truth is 2
    config = quadratic_run("joint", "adagrad", [2.05], options=three, local_steps=10, rate=1e-4)
    verdict = judge(diagnosed(tmp_path / "run", config, orders=1000))
    assert verdict.cause == "noise" and verdict.biased and "client.lagged=true" in verdict.sentence


def tiny_tags(**settings):
    """The settings of a run of a model with 105 weights on the texts of a few synthetic users."""
    sizes = {"clients": 4, "words": 20, "tags": 5, "examples_per_client": 12}
    parts = {"client": {"name": "adagrad", "learning_rate": 0.1}, "cohort": 4, **settings}
    return change(RunConfig("synthetic_tags", task_options=sizes), parts, "test")


@pytest.mark.slow
def test_the_noise_piece_is_zero_with_full_batches_and_positive_with_small_ones(tmp_path):
    full, small = (diagnosed(tmp_path / str(size), tiny_tags(batch_size=size), orders=3).numbers for size in (12, 3))
    assert full.pieces["noise"].norm < 1e-5 * full.truth
    assert small.pieces["noise"].norm > 1e-3 * small.truth


@pytest.mark.parametrize("cohort", [pytest.param(1, marks=SLOW), 2, 3])
def test_the_cohort_piece_equals_the_theorys_and_is_zero_with_full_participation(tmp_path, cohort):
    config = quadratic_run("joint", "adagrad", cohort=cohort)
    task = load_task(config)
    expected = cohort_bias(task, build_method(config, task), cohort, config.local_steps, at=X)
    piece = diagnosed(tmp_path / "run", config).numbers.pieces["cohorts"]
    missing = np.linalg.norm(expected.mean_over_cohorts - expected.full_participation)
    assert piece.norm == pytest.approx(missing, rel=1e-8, abs=1e-15)
    assert (piece.norm < 1e-15) == (cohort == 3)


@pytest.mark.slow
def test_drawn_cohorts_estimate_what_all_cohorts_give(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    twelve = {"hessians": rng.uniform(1, 9, (12, 2)).tolist(), "minima": rng.normal(size=(12, 2)).tolist()}
    config = quadratic_run("joint", "adagrad", options=twelve, local_steps=4, cohort=3)  # 220 cohorts
    exact = diagnosed(tmp_path / "all", config).numbers.pieces["cohorts"]
    monkeypatch.setattr("fedtrue.diagnosis.measure.MIN_COHORTS", 200)
    monkeypatch.setattr("fedtrue.diagnosis.measure.MAX_COHORTS", 200)
    drawn = diagnosed(tmp_path / "drawn", config).numbers.pieces["cohorts"]
    assert exact.standard_error == 0 < drawn.standard_error
    assert drawn.norm == pytest.approx(exact.norm, abs=4 * drawn.standard_error)


def test_weights_that_differ_from_the_objectives_are_detected(tmp_path):
    w = np.array([0.1, 0.1, 0.8])
    config = quadratic_run("joint", "sgd", options={"weights": w.tolist()}, weighting="uniform")
    config = fixed_point(change(config, {"client_rate": 1e-5}, "test"))
    found = diagnosed(tmp_path / "run", config)
    assert found.numbers.pieces["weighting"].along == pytest.approx(-1, abs=0.01)
    assert judge(found).cause == "weighting" and "leave --weighting out" in judge(found).sentence


@pytest.mark.parametrize(
    "client_state, correction",
    [
        ("sync", "joint"),
        ("inherit", "none"),
        pytest.param("sync", "none", marks=SLOW),
        pytest.param("inherit", "joint", marks=SLOW),
    ],
)
def test_the_pseudo_gradient_equals_that_of_the_next_round(tmp_path, client_state, correction):
    method = f"--client adam --client-rate 0.05 --correction {correction} --client-state {client_state}"
    more = "--local-steps 2,30 --seed 3 --set task_options.noise=0.3 --rounds 4 --checkpoint-every 3"
    assert main(["run", "quadratic", *method.split(), *more.split(), "--out", str(tmp_path)]) == 0
    (tmp_path / "checkpoints" / "00000004.json").unlink()  # back to where round 3 began
    found = measure(tmp_path, orders=1)
    assert found.round == 3
    next_round = read_lines(tmp_path / METRICS)[3]
    assert found.numbers.pseudo_gradient_norm == pytest.approx(next_round["pseudo_gradient_norm"], rel=1e-9)


@pytest.mark.slow
def test_a_network_on_text_is_diagnosed_and_the_command_prints_json(tmp_path, capsys):
    sizes = {"clients": 12, "words": 30, "tags": 6, "examples_per_client": 20}
    options = [part for name, value in sizes.items() for part in ("--set", f"task_options.{name}={value}")]
    run = ["run", "synthetic_tags", *options, "--batch-size", "4", "--cohort", "3", "--client-rate", "1"]
    assert main([*run, "--correction", "none", "--rounds", "3", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["diagnose", str(tmp_path / "run"), "--clients", "8", "--orders", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["clients"] == {"looked_at": 8, "federation": 12, "dropped": 0}
    assert answer["true_gradient"]["standard_error"] > 0
    assert answer["client_weights"]["min"] < 1 < answer["client_weights"]["max"]
    assert set(answer["pieces"]) == {"weighting", "bias", "noise", "drift", "cohorts"}
    assert -1 <= answer["pseudo_gradient"]["cosine"] <= 1
    assert main(["diagnose", str(tmp_path / "run"), "--orders", "2"]) == 0
    assert answer["sentence"].endswith(".") and "12 of 12 clients" in capsys.readouterr().out


def test_too_few_sampled_clients_are_reported_as_too_few(tmp_path):
    rng = np.random.default_rng(1)
    forty = {"hessians": np.ones((40, 2)).tolist(), "minima": rng.normal(size=(40, 2)).tolist()}
    start = np.mean(forty["minima"], axis=0)  # the true minimiser
    config = quadratic_run("none", "sgd", start, options=forty, local_steps=3, cohort=2)
    found = diagnosed(tmp_path / "run", config, clients=10)
    assert found.numbers.clients == 10
    assert "--clients 40" in judge(found).sentence and not judge(found).biased
    assert "has converged" in judge(measure(tmp_path / "run", clients=40, orders=1)).sentence


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_a_named_method_is_diagnosed_like_the_fedopt_it_consists_of(tmp_path, name):
    config = change(quadratic_run(), {"method": name}, "test")
    config = replace(config, method={"name": name, "client_rate": RATE})
    found = diagnosed(tmp_path / "run", config)
    assert found.client_weights == pytest.approx(STEPS) and judge(found).cause == "bias"
    assert "--method fedopt --client sgd --correction joint" in judge(found).cure


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_without_a_checkpoint_is_refused_in_one_line(tmp_path, capsys, made):
    if made:
        folder.make(tmp_path / "run", quadratic_run().settings())
    assert main(["diagnose", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and ("has no checkpoint yet" if made else "is not a run folder") in said


def test_the_command_and_the_function_have_the_same_defaults():
    options = build_parser().parse_args(["diagnose", "RUN"])
    assert (options.clients, options.orders) == (CLIENTS, ORDERS)


# --- methods with control variates, proximal terms, momentum ----------------------------------------------------------


def trained(path, method, rounds=3000, **settings):
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    ft.train(task, method, rounds=rounds, local_steps=STEPS.tolist(), out=path, **settings)
    return ft.diagnose(path)


@pytest.mark.parametrize("option", ["I", "II"])
def test_converged_control_variates_leave_no_bias_where_fedavg_has_one(tmp_path, option):
    fedavg = trained(tmp_path / "fedavg", ft.methods.fedavg(RATE))
    scaffold = trained(tmp_path / "scaffold", ft.methods.scaffold(ft.client.sgd(RATE), option=option))
    assert fedavg.verdict.cause == "bias" and fedavg.diagnosis.numbers.pieces["bias"].along < -0.9
    assert not scaffold.verdict.biased and "has converged" in scaffold.verdict.sentence


def test_control_variates_that_have_not_converged_are_reported(tmp_path):
    """At the minimiser, after a round of one client: the others still have c_i = 0 and drift apart as in FedAvg."""
    task, method = ft.tasks.quadratic(HESSIANS, MINIMA), ft.methods.scaffold(ft.client.sgd(RATE))
    how = {"rounds": 1, "cohort": 1, "start": task.minimiser, "local_steps": STEPS.tolist()}
    ft.train(task, method, **how, out=tmp_path / "run")
    found = ft.diagnose(tmp_path / "run", task, method)
    assert found.verdict.cause == "bias" and "control variates that have not converged yet" in found.verdict.sentence


def test_the_pieces_of_a_proximal_method_add_up_to_its_pseudo_gradient(tmp_path):
    """At x the proximal term is 0, so `truth` is the gradient at the scale of the shortened steps."""
    method = ft.methods.fedprox(ft.client.sgd(RATE), mu=30.0, correction="joint")
    found = trained(tmp_path / "run", method, rounds=50).diagnosis
    with float64():
        task = ft.tasks.quadratic(HESSIANS, MINIMA)
        at = jnp.asarray(ft.load_run(tmp_path / "run").params)
        expected = jax.jit(pseudo_gradient(task, method, STEPS.tolist()))(at)
    assert found.numbers.pseudo_gradient_norm == pytest.approx(np.linalg.norm(np.asarray(expected)), rel=1e-9)
    assert found.numbers.pieces["bias"].norm < 1e-12 * found.numbers.truth  # the exact trace contains the proximal term
    assert found.client_weights.max() < STEPS.max()  # the proximal term shortens the steps


def test_mimelite_is_decomposed_without_the_servers_momentum(tmp_path):
    """Its clients are then SGD clients with learning rate (1−β) η."""
    found = trained(tmp_path / "run", ft.methods.mimelite(ft.client.momentum(RATE, beta=0.5)), rounds=5).diagnosis
    assert found.client_weights == pytest.approx(0.5 * STEPS)


def test_a_user_defined_correction_is_diagnosed(tmp_path):
    """Division by the number of steps is FedNova's correction; a hand-written one has no bias either."""
    hand_written = ft.Correction(
        needs=frozenset({"trace"}),
        send=lambda steps: {"update": jax.tree.map(lambda d, t: d / t, steps.pseudo_gradient, steps.trace)},
        receive=lambda mean, state: (mean["update"], state),
    )
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    method = ft.fedopt(ft.client.sgd(1e-4), ft.server.sgd(5.0), correction=hand_written)
    ft.train(task, method, rounds=3000, local_steps=STEPS.tolist(), out=tmp_path / "run")
    with pytest.raises(ValueError, match="cannot be rebuilt, as some of its parts have no name"):
        ft.diagnose(tmp_path / "run")
    found = ft.diagnose(tmp_path / "run", task, method)
    assert found.diagnosis.numbers.pieces["bias"].norm < 1e-12 * found.diagnosis.numbers.clients_scale
    assert not found.verdict.biased
