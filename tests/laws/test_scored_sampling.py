"""Samplings by losses and updates: who is chosen, what is unbiased, and what the server makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedtrue as ft
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.sampling import Draw
from fedtrue.algorithm.scored_sampling import approximate_probabilities, optimal_probabilities, predicted
from fedtrue.engine.capacity import message_bytes
from fedtrue.interface import Contribution
from fedtrue.precision import float64

RNG = np.random.default_rng(5)
HESSIANS, MINIMA = 1 + RNG.random((6, 2)), RNG.normal(size=(6, 2))
WEIGHTS = [1.0, 2.0, 4.0, 1.0, 3.0, 9.0]
TASK = ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS)


def fedavg(sampling, rate=0.1, **options):
    return ft.fedopt(ft.client.sgd(rate), correction="none", sampling=sampling, **options)


def loss_of(client, x):
    """F_i(x) = ½ Σ h (x − m)²."""
    return 0.5 * (HESSIANS[client] * (x - MINIMA[client]) ** 2).sum()


# --- power of choice --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2, 6])
def test_the_clients_with_the_highest_losses_train(lanes):
    with float64():
        simulation = ft.Simulation(TASK, fedavg("power_of_choice(candidates=6)"), cohort=2, local_steps=3, lanes=lanes)
        state = simulation.start()
        for _ in range(4):
            losses = [loss_of(client, np.asarray(state.params)) for client in range(6)]
            state, info = simulation.round(state)
            assert set(info.cohort.tolist()) == set(np.argsort(losses)[-2:])
            assert info.participants.tolist() == [6, 2]
            assert int(info.steps) == 6 + 2 * 3  # one batch per candidate, three steps per client that trains


def test_equal_losses_are_chosen_from_at_random():
    task = ft.tasks.quadratic(np.ones((5, 1)), np.zeros((5, 1)))
    result = ft.train(task, fedavg("power_of_choice(candidates=5)", rate=1e-9), rounds=1000, cohort=1, local_steps=1)
    assert stats.chisquare(np.bincount(result.history["cohort"].ravel(), minlength=5)).pvalue > 1e-4


def examples_task(*clients, **settings):
    """F_i(x) = mean over its examples of e x: at x = 1 the mean of its examples."""
    data = [{"e": np.asarray(examples, np.float32)} for examples in clients]
    init = lambda key: jnp.ones(())
    return ft.tasks.from_arrays(data, init, lambda params, row: params * row["e"], **settings)


@pytest.mark.parametrize(("batches", "chosen"), [(None, 1), (1, 0), (2, 1), (9, 1)])
def test_losses_are_over_all_data_or_over_some_batches(batches, chosen):
    """Batches of two, in the stored order. Client 0: first 3, all 6/4 = 1.5; client 1: first 2, all 7/3 = 2.33."""
    task = examples_task([3, 3, 0, 0], [2, 2, 3], batch_size=2, shuffle=False)
    method = fedavg({"name": "power_of_choice", "candidates": 2, "batches": batches}, rate=0.0)
    simulation = ft.Simulation(task, method, cohort=1, local_steps=1)
    _, info = simulation.round(simulation.start())
    assert info.cohort.tolist() == [chosen]


def test_losses_of_accumulated_batches_are_those_of_the_whole_batch():
    from dataclasses import replace

    task = examples_task([3, 3, 0, 0, 1], [2, 2, 3, 9, 1], [5, 5, 5, 5, 5], batch_size=2, shuffle=False)
    method = fedavg("power_of_choice(candidates=3)", rate=0.01)
    runs = [ft.train(each, method, rounds=3, cohort=2) for each in (task, replace(task, batch_size=1, accumulate=2))]
    np.testing.assert_array_equal(runs[0].history["cohort"], runs[1].history["cohort"])


def test_power_of_choice_is_biased_towards_clients_with_a_high_loss():
    """Minima 0, 0, 0, 0 and 10: the objective's minimiser is 2, the largest loss is smallest at 5."""
    task = ft.tasks.quadratic(np.ones((5, 1)), np.array([[0.0], [0.0], [0.0], [0.0], [10.0]]))
    ends = {
        name: ft.train(task, fedavg(name, rate=0.02), rounds=400, cohort=1, local_steps=1).params
        for name in ("power_of_choice(candidates=5)", "power_of_choice(candidates=2)")
    }
    assert task.minimiser == pytest.approx(2.0)
    assert ends["power_of_choice(candidates=5)"] == pytest.approx(5.0, abs=0.2)
    assert 2.5 < float(ends["power_of_choice(candidates=2)"][0]) < 5  # fewer candidates, less bias


def test_candidates_that_do_not_reply_do_not_train():
    availability = ft.Availability(dropout=0.5)
    result = ft.train(TASK, fedavg("power_of_choice"), rounds=60, cohort=2, local_steps=1, availability=availability)
    clients = result.history["clients"]
    assert set(clients) == {0, 1, 2} and result.summary["status"] == "finished"
    assert (result.history["missing"] == 0).all()  # of those that train; candidates reply or not
    np.testing.assert_array_equal((result.history["cohort"] >= 0).sum(axis=1), clients)


def test_the_bytes_of_candidates_and_of_clients_that_train_are_counted():
    """Two float64 weights: a candidate gets 16 bytes and sends 8, a client that trains gets 16 and sends 16."""
    result = ft.train(TASK, fedavg("power_of_choice(candidates=5)"), rounds=2, cohort=2, local_steps=1)
    assert set(result.history["bytes_down"]) == {5 * 16 + 2 * 16}
    assert set(result.history["bytes_up"]) == {5 * 8 + 2 * 16}


def test_the_weights_of_clients_chosen_by_size_and_loss_are_equal():
    assert fedavg("power_of_choice").weighting == fedavg("by_size").weighting


# --- optimal ----------------------------------------------------------------------------------------------------------


def optimal_twin(lengths, m):
    """The paper's formula: l is the largest integer with 0 < m + l − n ≤ Σ_{i ≤ l} u_(i) / u_(l), u ascending."""
    u, n = np.sort(lengths), len(lengths)
    size = max(k for k in range(1, n + 1) if 0 < m + k - n <= u[:k].sum() / u[k - 1] + 1e-12)
    p = np.ones(n)
    small = np.argsort(lengths)[:size]
    p[small] = (m + size - n) * lengths[small] / u[:size].sum()
    return p


LENGTHS = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([1e-3, 5.0, 0.1, 0.2, 7.0, 0.3]), RNG.pareto(1.2, 20) + 1e-3]


@pytest.mark.parametrize("lengths", LENGTHS, ids=["even", "two long", "heavy tail"])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_probabilities_are_those_of_the_paper_and_sum_to_m(lengths, share):
    m, active = share * len(lengths), jnp.ones(len(lengths), bool)
    with float64():
        p = np.asarray(optimal_probabilities(jnp.asarray(lengths), m, active))
        approximate = np.asarray(approximate_probabilities(jnp.asarray(lengths), m, active))
    np.testing.assert_allclose(p, optimal_twin(lengths, m), rtol=1e-12)
    assert p.sum() == pytest.approx(m)
    assert approximate.sum() <= m + 1e-9
    if (approximate == 1).sum() == (p == 1).sum():  # the iteration has found all that are cut
        np.testing.assert_allclose(approximate, p, rtol=1e-9)


def test_places_that_are_not_active_have_no_share_in_the_probabilities():
    lengths, active = jnp.asarray([1.0, 0.0, 2.0, 0.0, 3.0]), jnp.asarray([True, False, True, False, True])
    for probabilities in (optimal_probabilities, approximate_probabilities):
        p = np.asarray(probabilities(lengths, 1.5, active))
        np.testing.assert_allclose(p, [0.25, 0, 0.5, 0, 0.75], rtol=1e-6)  # 1.5 u / 6


def test_no_client_uploads_an_update_of_length_0():
    for probabilities in (optimal_probabilities, approximate_probabilities):
        assert np.asarray(probabilities(jnp.zeros(3), 1.0, jnp.ones(3, bool))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("approximate", [False, True])
def test_clients_upload_independently_with_their_probabilities(approximate):
    norms, weights, draws = np.array([1.0, 2.0, 0.5, 6.0, 3.0]), np.array([2.0, 1.0, 4.0, 1.0, 1.0]), 20_000
    uploads = ft.sampling.optimal(share=0.4, approximate=approximate).uploads
    trained = Draw(jnp.arange(5), jnp.ones(5, bool), jnp.ones(5))

    def choose(key):
        context = Context(0, key, 5, 5)
        return uploads.choose(context, trained, {"update": jnp.asarray(norms)}, jnp.asarray(weights), ())[0]

    found = jax.tree.map(np.asarray, jax.vmap(choose)(jax.random.split(jax.random.key(0), draws)))
    p = optimal_twin(norms * weights, 2.0)
    np.testing.assert_allclose(1 / found.inverse_probability[0], p, rtol=1e-5)
    below = p < 1
    counts = found.active.sum(axis=0)
    statistic = ((counts - draws * p) ** 2)[below] / (draws * p * (1 - p))[below]
    assert stats.chi2.sf(statistic.sum(), below.sum()) > 1e-4
    assert (counts[~below] == draws).all()
    together = np.corrcoef(found.active[:, below].T)[np.triu_indices(below.sum(), 1)]
    assert np.abs(together).max() < 5 / np.sqrt(draws)  # five standard errors


SLOPES, SIZES = np.array([-3.0, 0.5, 1.0, 6.0, 2.0]), np.array([1, 2, 3, 1, 5])
ETA, ROUNDS = 0.1, 8_000


def linear_task(sizes=SIZES):
    """F_i(x) = s_i x: a client's pseudo-gradient after one step is η s_i wherever the server is."""
    data = [{"slope": np.full(size, slope)} for size, slope in zip(sizes, SLOPES)]
    loss = lambda params, example: example["slope"] * params
    return ft.tasks.from_arrays(data, lambda key: jnp.zeros(()), loss, batch_size=8, float64=True)


def mean_update(sampling, cohort=5, sizes=SIZES, rounds=ROUNDS):
    """Per round, in units of η."""
    result = ft.train(linear_task(sizes), fedavg(sampling, ETA), rounds=rounds, cohort=cohort, local_steps=1, lanes=1)
    return -float(result.params) / (ETA * rounds)


@pytest.mark.parametrize("approximate", ["false", "true"])
def test_the_mean_over_those_that_upload_is_unbiased(approximate):
    w = SIZES / SIZES.sum()
    p = optimal_twin(w * np.abs(SLOPES), 0.3 * 5)
    error = np.sqrt(((w * SLOPES) ** 2 * (1 - p) / p).sum() / ROUNDS)  # Σ (w s)² (1 − p)/p per round
    found = mean_update(f"optimal(share=0.3, approximate={approximate})")
    assert abs(found - (w * SLOPES).sum()) < 4 * error
    uniform_error = np.sqrt(((w * SLOPES) ** 2 * (1 - 0.3) / 0.3).sum() / ROUNDS)
    assert error < 0.8 * uniform_error  # that is what the probabilities are for


def test_the_mean_over_those_of_a_small_cohort_that_upload_is_unbiased_for_equal_weights():
    found = mean_update("optimal(share=0.4)", cohort=3, sizes=np.ones(5, int))
    # a round's update has at most the variance of a single client of five, uploaded once in 1.2 rounds: 60/1.2
    assert abs(found - SLOPES.mean()) < 4 * np.sqrt(60 / 1.2 / ROUNDS)


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_the_mean_of_a_round_is_unbiased_in_the_engine_too(sampling):
    sizes = SIZES if sampling == "poisson" else np.ones(5, int)
    w, q = sizes / sizes.sum(), 2 / 5
    error = np.sqrt(((w * SLOPES) ** 2).sum() * (1 - q) / q / ROUNDS)  # of independent draws
    assert abs(mean_update(sampling, 2, sizes) - (w * SLOPES).sum()) < 4 * error


def test_over_cycles_the_mean_of_cyclic_cohorts_is_that_of_all_clients():
    """Groups of one client each: every cycle has every client once."""
    found = mean_update("cyclic(groups=5)", 1, np.ones(5, int), rounds=50)
    assert found == pytest.approx(SLOPES.mean(), rel=1e-9)


def test_power_of_choice_does_not_have_the_mean_of_all_clients():
    """With x below 0 the loss s x is highest for the smallest slope."""
    found = mean_update("power_of_choice(candidates=5)", 2, np.ones(5, int), rounds=40)
    assert abs(found - SLOPES.mean()) > 0.5


def test_bytes_up_are_those_of_the_clients_that_upload_and_a_norm_per_client_that_trains():
    result = ft.train(TASK, fedavg("optimal(share=0.5)"), rounds=8, cohort=4, local_steps=2)
    uploads = result.history["clients"]
    np.testing.assert_array_equal(result.history["bytes_up"], 16 * uploads + 8 * 4)
    assert set(result.history["bytes_down"]) == {4 * (16 + 4)}  # the weights, and the probability
    assert set(result.history["steps"]) == {8} and len(set(uploads)) > 1
    assert (result.history["cohort"] >= 0).all()  # all that trained


def test_joint_sends_two_norms_and_the_approximation_exchanges_pairs():
    joint = ft.fedopt(ft.client.adagrad(0.1), sampling="optimal(approximate=true)")
    with float64():
        found = message_bytes(TASK, joint)
    assert found == ((2 * 16,), (16 + 4 * (1 + 4),), (2 * 8 + 4 * 2 * 4,))


def test_every_contribution_has_its_share_in_the_length_of_an_update():
    """Client 0 has a long update, client 1 a long trace: with equal squares of equal share, equal probabilities."""
    uploads = ft.sampling.optimal(share=0.5).uploads
    contributions = {"update": Contribution(jnp.ones(4)), "count": Contribution(jnp.ones(3), "objective")}
    assert {name: float(norm) for name, norm in uploads.report(contributions).items()} == {"update": 2.0}
    norms = {"update": jnp.asarray([3.0, 0.0]), "trace": jnp.asarray([0.0, 5e6])}
    trained = Draw(jnp.arange(2), jnp.ones(2, bool), jnp.ones(2))
    chosen, _ = uploads.choose(Context(0, jax.random.key(0), 2, 2), trained, norms, jnp.ones(2), ())
    np.testing.assert_allclose(chosen.inverse_probability, [2.0, 2.0], rtol=1e-6)


def with_a_diverging_client():
    """Client 1's slope is √−1."""
    data = [{"square": np.full(2, square, np.float32)} for square in (1.0, -1.0, 4.0, 9.0)]
    loss = lambda params, example: jnp.sqrt(example["square"]) * params
    return ft.tasks.from_arrays(data, lambda key: jnp.zeros(()), loss, batch_size=2)


@pytest.mark.parametrize("sampling", ["optimal(share=0.9)", "importance", "power_of_choice(candidates=4)"])
def test_a_client_that_diverges_is_not_chosen_and_does_not_spoil_the_others(sampling):
    result = ft.train(with_a_diverging_client(), fedavg(sampling), rounds=12, cohort=3, local_steps=1)
    assert np.isfinite(result.params) and result.params != 0
    if "power" in sampling:
        assert 1 not in result.history["cohort"]
    else:
        drawn = (result.history["cohort"] == 1).any(axis=1)
        np.testing.assert_array_equal(result.history["dropped"], drawn)


@pytest.mark.filterwarnings("error")
def test_a_round_in_which_nobody_uploads_is_no_divergence_even_if_a_client_diverged():
    result = ft.train(with_a_diverging_client(), fedavg("optimal(share=0.01)"), rounds=40, local_steps=1)
    assert (result.history["clients"] == 0).sum() > 30 and set(result.history["dropped"]) == {1}
    assert result.summary["status"] == "finished" and set(result.history["trained"]) == {4}


# --- importance -------------------------------------------------------------------------------------------------------


def importance_twin(rounds, deviations, missing, rate=0.1, steps=2):
    """As in the authors' code: thresholds from last round's norms, A and B from sums over all rounds; server rate 1."""
    x, w, threshold = np.full(2, 5.0), np.array(WEIGHTS) / sum(WEIGHTS), 0.0
    sums, sent, prediction = np.zeros((4, 2)), [], np.zeros(2)
    for number in range(1, rounds + 1):
        y = np.tile(x, (6, 1))
        for _ in range(steps):
            y -= rate * HESSIANS * (y - MINIMA)
        updates = y - x
        norms = np.linalg.norm(updates, axis=1)
        uploads = norms > threshold
        sent.append(int(uploads.sum()))
        mean = (w * norms).sum()
        threshold = mean - deviations * np.sqrt((w * (norms - mean) ** 2).sum())
        replacement = prediction if missing == "process" else np.zeros(2)
        step = (w[:, None] * np.where(uploads[:, None], updates, replacement)).sum(0)
        if missing == "ignore":
            step = (w[:, None] * updates)[uploads].sum(0) / max(w[uploads].sum(), 1e-9)
        sums += [x, x + step, x * x, x * (x + step)]
        x = x + step
        sx, sy, sxx, sxy = sums
        if number > 1:
            slope = (number * sxy - sx * sy) / (number * sxx - sx**2)
            prediction = slope * x + (sy - slope * sx) / number - x
    return x, sent


@pytest.mark.parametrize("missing", ["process", "zero", "ignore"])
@pytest.mark.parametrize("deviations", [1.0, 0.2])
def test_importance_is_the_authors_algorithm(missing, deviations):
    sampling = {"name": "importance", "deviations": deviations, "missing": missing}
    result = ft.train(TASK, fedavg(sampling), rounds=12, local_steps=2)
    expected, sent = importance_twin(12, deviations, missing)
    assert result.history["clients"].tolist() == sent
    assert min(sent) < 6 == sent[0]
    np.testing.assert_allclose(result.params, expected, rtol=1e-8)


def test_importance_with_correction_joint_mixes_in_the_prediction_too():
    method = ft.fedopt(ft.client.adagrad(0.1), sampling="importance(deviations=0.2)")
    result = ft.train(TASK, method, rounds=30, local_steps=2)
    assert set(result.history["clients"]) != {6} and np.isfinite(result.params).all()
    assert np.linalg.norm(result.params - TASK.minimiser) < np.linalg.norm(TASK.start - TASK.minimiser)


def test_the_prediction_is_the_line_of_least_squares_per_weight():
    from fedtrue.algorithm.scored_sampling import no_process, observed

    with float64():
        xs, ys = RNG.normal(size=(7, 3)) + 100, RNG.normal(size=(7, 3)) + 100
        process = no_process(jnp.zeros(3))
        for x, y in zip(xs, ys):
            process = observed(process, jnp.asarray(x), jnp.asarray(y))
        here = np.array([99.0, 100.0, 102.0])
        found = np.asarray(predicted(process, jnp.asarray(here)))
    expected = [np.polyval(np.polyfit(xs[:, i], ys[:, i], 1), here[i]) for i in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("missing", ["process", "zero", "ignore"])
def test_rounds_without_an_upload_are_not_a_divergence(missing):
    """Both clients send 0.1 x, from x = 5: 0.5 > 0 is uploaded, and 0.45 is not above the threshold, 0.5 or 0.45."""
    task = ft.tasks.quadratic(np.ones((2, 1)), np.zeros((2, 1)))
    result = ft.train(task, fedavg(f"importance(missing={missing})"), rounds=15, local_steps=1)
    assert result.history["clients"].tolist() == [2] + [0] * 14 and result.summary["status"] == "finished"
    assert float(result.params[0]) == pytest.approx(4.5)  # the line through (5, 4.5) and (4.5, 4.5) is flat


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ft.sampling.optimal(share=1.5), r"optimal: share must be a finite number above 0 and below 1"),
        (lambda: ft.sampling.importance(missing="proces"), r"did you mean 'process'"),
        (lambda: ft.sampling.importance(deviations=float("nan")), r"importance: deviations must be a finite number"),
        (lambda: ft.sampling.power_of_choice(candidates=0), r"candidates must be an integer of at least 1"),
        (lambda: ft.sampling.power_of_choice(batches=0), r"batches must be an integer of at least 1"),
        (lambda: ft.sampling.cyclic(groups=0), r"cyclic: groups must be an integer of at least 1"),
        (
            lambda: ft.fedopt(ft.client.sgd(0.1), correction="local(table=true)", sampling="optimal"),
            r"'optimal' chooses who uploads by the updates; correction 'local' with a table",
        ),
    ],
)
def test_wrong_options_are_refused_with_the_cure(build, message):
    with pytest.raises(ValueError, match=message):
        build()
