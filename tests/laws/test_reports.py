"""What clients report of their gradients, and how the server scales it: unbiased reports, bounded steps, the table."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedtrue as ft
from fedtrue.algorithm.correction import average_over_rounds, moments
from fedtrue.algorithm.report import GradientSums, add_gradient, gradient_means, no_gradients

THREE = {"hessians": [[1.0], [1.0], [2.0]], "minima": [[6.0], [-1.0], [-2.0]]}
TWO = {"hessians": [[2.0], [4.0]], "minima": [[1.0], [-1.0]], "start": [2.0]}
OPTIMIZERS = {
    "sgd": ft.client.sgd(1.0),
    "momentum": ft.client.momentum(1.0),
    "adagrad": ft.client.adagrad(1.0),
    "rmsprop": ft.client.rmsprop(1.0),
    "adam": ft.client.adam(1.0),
    "yogi": ft.client.yogi(1.0),
    "amsgrad": ft.client.amsgrad(1.0),
    "adabelief": ft.client.adabelief(1.0),
}
MEAN = {"name": "local", "report": "mean_gradient"}
INTERCEPT = {"name": "local", "report": "intercept"}


@pytest.mark.parametrize("cumulative", [True, False])
def test_two_rounds_of_moments_by_hand(cumulative):
    """F_1 = (x−1)², F_2 = 2 (x+1)², x = 2, client SGD with η = 0.1 and two steps, α = 0.5, β = 0.75, ε = 0."""
    eta, alpha, beta, x, v, total, weight = 0.1, 0.5, 0.75, 2.0, 0.0, 0.0, 0.0
    for _ in range(2):
        means, squares = [], []
        for h, minimum in ((2.0, 1.0), (4.0, -1.0)):
            first = h * (x - minimum)
            second = h * (x - eta * first - minimum)
            means.append((first + second) / 2)
            squares.append((first**2 + second**2) / 2)
        v, weight = beta * v + (1 - beta) * np.mean(squares), beta * weight + (1 - beta)
        total += np.mean(squares)
        x = x - alpha * 2 * np.mean(means) / np.sqrt(total if cumulative else v / weight)  # T = τ = 2
    method = ft.methods.moments(ft.client.sgd(eta), alpha, beta=beta, epsilon=0.0, cumulative=cumulative)
    result = ft.train(ft.tasks.quadratic(**TWO), method, rounds=2, local_steps=2)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_with_lagged_moments_a_round_is_scaled_by_the_rounds_before():
    """As above with τ = 1: round 1 has only its own v̄ = (2² + 12²)/2 = 74; round 2 is divided by that √74."""
    x = 2 - 0.5 * 7 / np.sqrt(74)  # mean gradient (2 + 12)/2
    gradients = 2 * (x - 1), 4 * (x + 1)
    x = x - 0.5 * np.mean(gradients) / np.sqrt(74)
    method = ft.methods.moments(ft.client.sgd(0.1), 0.5, epsilon=0.0, lagged=True)
    result = ft.train(ft.tasks.quadratic(**TWO), method, rounds=2, local_steps=1)
    assert result.params == pytest.approx([x], rel=1e-12)


def test_the_named_method_is_fedopt_with_the_correction():
    task, client = ft.tasks.quadratic(**TWO), ft.client.adagrad(0.1)
    named = ft.methods.moments(client, 0.05, beta=0.5, table=True)
    parts = ft.fedopt(client, ft.server.sgd(0.05), correction=moments(beta=0.5, table=True))
    weights = [ft.train(task, method, rounds=3, local_steps=2, cohort=1).params for method in (named, parts)]
    assert np.array_equal(*weights)


@pytest.mark.parametrize("steps", [1, 7])
def test_for_sgd_the_mean_gradient_is_the_update_divided_by_its_trace(steps):
    """Δ = η Σ g_k and N = τ: both reports are FedNova's."""
    task = ft.tasks.quadratic(**THREE, noise=1.0)
    of = lambda correction: ft.fedopt(ft.client.sgd(0.05), correction=correction)
    weights = [ft.train(task, of(c), rounds=3, local_steps=[1, 4, steps]).params for c in ("local", MEAN)]
    assert weights[0] == pytest.approx(weights[1], rel=1e-12)


def test_a_direction_in_which_a_client_converges_within_the_round_is_reported_too_small():
    """g_k = (1−ηh)ᵏ g_0 for SGD on ½h x², so ḡ/g_0 = (1−(1−ηh)^τ)/(τηh): 1/τ for ηh = 1, near 1 for τηh ≪ 1."""
    curvatures, eta, steps = np.array([10.0, 1.0, 0.01]), 0.1, 50
    task = ft.tasks.quadratic(hessians=[curvatures], minima=[[0.0, 0.0, 0.0]], start=[1.0, 1.0, 1.0])
    method = ft.fedopt(ft.client.sgd(eta), ft.server.sgd(1.0), correction=MEAN)
    after = ft.train(task, method, rounds=1, local_steps=steps).params
    reported = (1 - after) / eta / curvatures  # x − x' = η ḡ, and g_0 = h
    assert reported == pytest.approx((1 - (1 - eta * curvatures) ** steps) / (steps * eta * curvatures), rel=1e-12)
    assert reported == pytest.approx([1 / 50, 0.199, 0.976], rel=2e-3)


@pytest.mark.parametrize("skewed", [False, True], ids=["normal", "skewed"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_mean_gradient_is_unbiased_under_any_optimizer_and_noise(name, skewed):
    seen = ft.theory.reported_gradient(OPTIMIZERS[name], noise=3.0, skewed=skewed, samples=20_000)
    assert abs(seen.share - 1) < 4 * seen.standard_error
    assert seen.standard_error == pytest.approx(3 / np.sqrt(10 * 20_000), rel=0.03)  # σ/√(τ samples)


@pytest.mark.parametrize("skewed", [False, True], ids=["normal", "skewed"])
@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_the_intercept_is_unbiased_too_at_four_times_the_variance(name, skewed):
    """Var = σ² (1/τ + k̄²/Σ(k−k̄)²) = σ² (4τ−2)/(τ(τ+1)): for τ = 10, 0.345 against 0.1."""
    seen = ft.theory.reported_gradient(OPTIMIZERS[name], "intercept", noise=3.0, skewed=skewed, samples=20_000)
    assert abs(seen.share - 1) < 4 * seen.standard_error
    assert seen.standard_error**2 * 20_000 / 9 == pytest.approx(38 / 110, rel=0.06)


@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_what_adaptive_clients_moved_is_a_biased_report(name):
    seen = ft.theory.reported_gradient(OPTIMIZERS[name], "update", noise=3.0, samples=20_000)
    assert abs(seen.share - 1) > 10 * seen.standard_error


def fixed_point_error(correction, rate, noise=0.0, steps=10, samples=1):
    task = ft.tasks.quadratic(**THREE, noise=noise)
    method = ft.fedopt(ft.client.adagrad(rate), correction=correction)
    found = ft.theory.measured_fixed_point(task, method, local_steps=steps, samples=samples)
    return float(found.params[0] - task.minimiser[0]), float(np.ravel(found.standard_error)[0])


@pytest.mark.slow
def test_under_noise_the_bias_of_mean_gradients_vanishes_with_the_rate_and_that_of_joint_does_not():
    """The scale of earlier rounds multiplies both sides of E ḡ = 0, so the fixed point is that of the mean alone."""
    samples, noise, steps = 4000, 3.0, [10, 4, 25]
    (large, _), (small, error) = (fixed_point_error(MEAN, rate, noise, steps, samples) for rate in (2e-2, 2e-3))
    limit = small - (large - small) / 9  # linear in η: x̃(0) = x̃(η) − (x̃(10η) − x̃(η))/9, with common random numbers
    assert abs(limit) < 4 * error
    joint, joint_error = fixed_point_error("joint", 2e-3, noise, steps, samples)
    assert joint > 6 * joint_error


def test_this_rounds_scale_leaves_a_bias_that_falls_with_the_clients_and_the_steps():
    """ḡ and v̄ of one round are correlated; the correlation of two means falls as 1/(clients · steps).

    Examples are exponential with mean 0 and deviation 1, one per batch, and G = 0 at the minimiser.
    """
    bias = {}
    for clients, steps in ((2, 4), (8, 4), (2, 16)):
        key = jax.random.split(jax.random.key(0), 200_000)
        draw = lambda key, shape=(clients, steps): jax.random.exponential(key, shape) - 1
        gradients = jax.vmap(draw)(key)
        scaled = gradients.mean((1, 2)) / jnp.sqrt((gradients**2).mean((1, 2)))
        bias[clients, steps] = float(scaled.mean())
        assert bias[clients, steps] < 0  # large gradients are those that are divided by more
    # E[ḡ/√v̄] ≈ −E[z³]/(2 M τ) = −1/(M τ); the next order is 10 % at M τ = 32 and more at 8
    assert bias[8, 4] == pytest.approx(-1 / 32, rel=0.2)
    assert bias[2, 16] == pytest.approx(bias[8, 4], rel=0.1)
    assert bias[2, 4] / bias[8, 4] == pytest.approx(4, rel=0.4)


def test_the_drift_of_the_mean_gradient_is_linear_in_the_rate_and_that_of_the_intercept_quadratic():
    """SGD takes steps of nearly equal length, so g_k is a line in k up to η²."""
    task = ft.tasks.quadratic(**THREE)

    def error(correction, rate):
        method = ft.fedopt(ft.client.sgd(rate), correction=correction)
        found = ft.theory.measured_fixed_point(task, method, local_steps=[10, 10, 10])
        return abs(float(found.params[0] - task.minimiser[0]))

    assert error(MEAN, 1e-2) / error(MEAN, 1e-3) == pytest.approx(10, rel=0.1)
    assert error(INTERCEPT, 1e-2) / error(INTERCEPT, 1e-3) == pytest.approx(100, rel=0.2)
    assert error(INTERCEPT, 1e-2) < 0.1 * error(MEAN, 1e-2)


def test_with_an_adaptive_path_the_intercept_reduces_the_drift_but_it_stays_linear():
    """Adagrad's steps become shorter, so g_k over k is not a line even as η → 0."""
    large, small = (fixed_point_error(INTERCEPT, rate)[0] for rate in (1e-2, 1e-3))
    assert large / small == pytest.approx(10, rel=0.1)
    assert abs(large) < 0.5 * abs(fixed_point_error(MEAN, 1e-2)[0])


def test_the_intercept_is_that_of_the_weighted_least_squares_line():
    rng = np.random.default_rng(0)
    gradients, weights = rng.normal(size=(6, 3)), np.array([4.0, 4, 4, 4, 4, 1])
    sums = no_gradients(frozenset({"mean", "square", "slope"}), jnp.zeros(3))
    assert isinstance(sums, GradientSums)
    for gradient, weight in zip(gradients, weights):
        sums = add_gradient(sums, jnp.asarray(gradient, jnp.float32), weight)
    means = gradient_means(sums)
    line = np.polyfit(np.arange(6), gradients, 1, w=np.sqrt(weights))  # polyfit squares its weights
    assert means["intercept"] == pytest.approx(line[1], rel=1e-4, abs=1e-5)
    assert means["mean_gradient"] == pytest.approx(np.average(gradients, axis=0, weights=weights), rel=1e-5)
    assert means["mean_square"] == pytest.approx(np.average(gradients**2, axis=0, weights=weights), rel=1e-5)


def test_after_a_single_step_the_intercept_is_its_gradient():
    sums = add_gradient(no_gradients(frozenset({"mean", "slope"}), jnp.zeros(2)), jnp.array([3.0, -1.0]), 5.0)
    assert gradient_means(sums)["intercept"].tolist() == [3.0, -1.0]


@pytest.mark.parametrize("report, gradient", [("mean_gradient", 3.0), ("intercept", 1.5)])
def test_every_example_counts_the_same_in_the_mean_gradient(report, gradient):
    """Examples 1, 2 and 6 in batches of two, η = 0: the gradients −1.5 and −6 weigh 2 and 1, so ḡ = −9/3."""
    task = ft.tasks.from_arrays(
        [{"x": np.array([[1.0], [2.0], [6.0]])}],
        init=lambda key: jnp.zeros(1),
        loss=lambda params, example: jnp.sum((params - example["x"]) ** 2) / 2,
        batch_size=2,
        shuffle=False,
    )
    correction = {"name": "moments", "report": report}
    result = ft.train(task, ft.fedopt(ft.client.sgd(0.0), ft.server.sgd(1.0), correction=correction), rounds=1)
    # v̄ = (2 · 1.5² + 1 · 6²)/3 = 13.5, T = 2
    assert float(result.params[0]) == pytest.approx(2 * gradient / (np.sqrt(13.5) + 1e-5), rel=1e-6)


BOUND_CASES = [{"lagged": lagged, "beta": beta} for lagged in (False, True) for beta in (0.5, 0.8, 0.99)]
BOUND_CASES += [{"lagged": lagged, "beta": 0.0, "cumulative": True} for lagged in (False, True)]  # a sum: V ≥ mean v̄


@pytest.mark.parametrize("options", BOUND_CASES, ids=str)
def test_no_coordinate_moves_by_more_than_the_bound_however_rare_or_large_its_gradients(options):
    """|mean ḡ| ≤ √(mean v̄) ≤ √(V/(1−β)): sparse features and a client 1,000 times the others included."""
    correction = moments(epsilon=0.0, **options)
    rng, dimension, steps = np.random.default_rng(1), 50, 10
    state = correction.init(jnp.zeros(dimension), None)
    for _ in range(30):
        present = rng.random((4, steps, dimension)) < rng.choice([0.01, 0.3, 1.0], dimension)
        gradients = present * rng.normal(size=(4, steps, dimension)) * 10.0 ** rng.integers(-3, 4, (4, 1, 1))
        mean = {
            "gradient": jnp.asarray(gradients.mean((0, 1))),
            "square": jnp.asarray((gradients**2).mean((0, 1))),
            "steps": jnp.asarray(float(steps)),
        }
        pseudo_gradient, state = correction.receive(mean, state)
        seen = mean["square"] > 0
        largest = jnp.max(jnp.abs(jnp.where(seen, pseudo_gradient, 0)))
        assert largest <= steps / np.sqrt(1 - options["beta"]) * (1 + 1e-5)


@pytest.mark.parametrize("lagged", [False, True])
def test_an_average_over_rounds_is_never_below_its_share_of_this_rounds_value(lagged):
    """So cohorts of any weight keep the bound: what is divided by W ≥ (1−β) Σ w is at most 1/(1−β) times a mean."""
    average, rng = average_over_rounds(0.8, lagged), np.random.default_rng(2)
    state = average.init(jnp.zeros(20))
    for _ in range(30):
        value = jnp.asarray(10.0 ** rng.uniform(-4, 4, 20))
        used, state = average.update(state, value)
        assert jnp.all(used >= 0.2 * value * (1 - 1e-6))


def test_the_average_of_equal_values_is_that_value():
    for lagged in (False, True):
        average = average_over_rounds(0.8, lagged)
        state = average.init(jnp.zeros(()))
        for _ in range(5):
            used, state = average.update(state, jnp.asarray(7.0))
            assert float(used) == pytest.approx(7.0, rel=1e-6)


def test_at_a_constant_rate_noise_averages_out_if_squares_are_added_up_over_rounds():
    """Steps fall with 1/√t, so the mean square distance does: from 400 to 25,600 rounds to an eighth. Else it stays."""
    task = ft.tasks.quadratic(**THREE, noise=1.0)

    def mean_square(cumulative, server_rate):
        method = ft.methods.moments(ft.client.adagrad(1e-3), server_rate, cumulative=cumulative)
        simulation = ft.Simulation(task, method, cohort=1, local_steps=4)
        state, squares = simulation.start(), []
        for rounds in (400, 25_200):
            points = []
            for _ in range(200):
                state, _ = simulation.run(state, rounds // 200)
                points.append(float(state.server.params[0] - task.minimiser[0]) ** 2)
            squares.append(np.mean(points[100:]))
        return squares[1] / squares[0]

    assert mean_square(True, 0.3) < 0.3  # measured: 0.15, of few independent points
    assert mean_square(False, 0.03) > 0.7


def test_a_cohort_with_little_data_makes_a_short_step_and_the_objective_keeps_its_weights():
    """Cohorts of one client: divided by its own weight, the client of weight 5 would count as much as that of 1."""
    task = ft.tasks.quadratic(**THREE, weights=[1.0, 2.0, 5.0])
    of_equal_weights = ft.tasks.quadratic(**THREE).minimiser[0] - task.minimiser[0]

    def mean_error(correction, server_rate):
        method = ft.fedopt(ft.client.sgd(1e-3), ft.server.sgd(server_rate), correction=correction)
        simulation = ft.Simulation(task, method, cohort=1, local_steps=4)
        state, points = simulation.start(), []
        for _ in range(100):
            state, _ = simulation.run(state, 60)
            points.append(float(state.server.params[0]))
        return np.mean(points[30:]) - task.minimiser[0]

    assert mean_error("local(report=mean_gradient)", 4.0) == pytest.approx(of_equal_weights, rel=0.15)
    assert abs(mean_error({"name": "moments", "beta": 0.99}, 4e-3)) < 0.1 * abs(of_equal_weights)


def test_a_mean_gradient_times_an_unbounded_trace_is_refused():
    with pytest.raises(ValueError, match=r"arbitrarily large for this 'adam': set initial_accumulator above 0"):
        ft.fedopt(ft.client.adam(0.01), correction={"name": "joint", "report": "mean_gradient"})
    ft.fedopt(ft.client.adam(0.01, initial_accumulator=0.1), correction={"name": "joint", "report": "mean_gradient"})
    ft.fedopt(ft.client.adam(0.01), correction="joint")


def test_an_unbounded_trace_times_a_mean_gradient_would_be_a_large_step():
    """Adam's first gradient is 1e-6 and the second 1: N ≈ P_1 ≈ 1e6 · √(1−β₂), and N ḡ ≈ N/2, while Δ is of order η."""
    optimizer = ft.client.adam(1.0)
    state, move, total, moved = optimizer.init(jnp.zeros(1), 0), optimizer.move.init(jnp.zeros(1)), 0.0, 0.0
    ones = optimizer.move.init(jnp.zeros(1))
    for gradient in (1e-6, 1.0):
        p, state = optimizer.precondition(jnp.array([gradient]), state)
        step, move = optimizer.move.step(jnp.array([gradient]), p, state, move)
        one, ones = optimizer.move.step(jnp.ones(1), p, state, ones)
        total, moved = total + float(one[0]), moved + float(step[0])
    assert total * 0.5 > 1e5
    assert moved < 3


def test_weight_decay_of_clients_that_report_gradients_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"reports gradients, which contain no weight decay.*add_decayed_weights"):
        ft.fedopt(ft.client.adam(0.01, weight_decay=0.1), correction="moments")
    decayed = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.01))
    ft.train(ft.tasks.quadratic(), ft.fedopt(ft.client.adam(0.01), decayed, correction="moments"), rounds=1)


@pytest.mark.parametrize("correction", ["local", "joint", "moments"])
def test_the_servers_table_is_the_mean_of_the_clients_last_reports(correction):
    task = ft.tasks.quadratic(**THREE, weights=[1.0, 2.0, 5.0])
    method = ft.fedopt(ft.client.adagrad(0.05), ft.server.sgd(0.1), correction={"name": correction, "table": True})
    simulation = ft.Simulation(task, method, cohort=2, local_steps=3)
    state = simulation.start()
    for _ in range(5):
        state, _ = simulation.round(state)
    last = simulation.on_host(state, np.arange(3)).memory[0]["reported"]
    table = np.asarray(state.server.correction["table"])
    assert table == pytest.approx(np.average(last, axis=0, weights=[1, 2, 5]), rel=1e-6)


def test_with_a_table_small_cohorts_converge_at_a_constant_rate_where_they_scatter_without():
    task = ft.tasks.quadratic(**THREE)

    def distance(table):
        correction = {"name": "local", "report": "intercept", "table": table}
        method = ft.fedopt(ft.client.sgd(1e-3), ft.server.sgd(50.0), correction=correction)
        result = ft.train(task, method, rounds=400, cohort=1, local_steps=5)
        return abs(float(result.params[0] - task.minimiser[0]))

    assert distance(True) < 1e-4  # what is left is the drift of order η²
    assert distance(False) > 1e-2


def test_averaging_the_denominator_over_rounds_reduces_the_ratio_bias_of_joint():
    """Cohorts of one client: joint divides Δ/N by 1/N of the same client, so it is not corrected at all."""
    task = ft.tasks.quadratic(**THREE)

    def mean_error(correction):
        method = ft.fedopt(ft.client.adagrad(1e-3), ft.server.sgd(1.0), correction=correction)
        simulation = ft.Simulation(task, method, cohort=1, local_steps=[2, 20, 8])
        state, points = simulation.start(), []
        for _ in range(100):
            state, _ = simulation.run(state, 60)
            points.append(float(state.server.params[0]))
        return abs(np.mean(points[30:]) - task.minimiser[0])

    assert mean_error({"name": "joint", "beta": 0.99}) < 0.25 * mean_error("joint")
