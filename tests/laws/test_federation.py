"""Laws of whole rounds: FedNova, invariances, sampling, dropped clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.aggregation import mean, total, weigh, weighted_sum
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import METHOD, UNIFORM, ClientOutput, Contribution
from fedtrue.algorithm.sampling import by_size, client_sizes, uniform

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]]
STEPS = [2, 7, 4]


def one_round(method, **arguments):
    return ft.train(ft.tasks.quadratic(HESSIANS, MINIMA), method, rounds=1, local_steps=STEPS, **arguments).params


def test_sgd_with_local_correction_is_fednovas_normalised_averaging():
    rate, x = 0.02, np.array([5.0, 5.0])
    normalised = 0.0
    for h, m, tau in zip(np.array(HESSIANS), np.array(MINIMA), STEPS):
        end = m + (1 - rate * h) ** tau * (x - m)  # τ steps of GD on a quadratic
        normalised += (x - end) / tau / 3
    got = one_round(ft.fedopt(ft.client.sgd(rate), correction="local"))
    np.testing.assert_allclose(got, x - normalised, rtol=1e-12)


def test_joint_correction_of_sgd_rescales_by_the_harmonic_mean_of_the_steps():
    local = np.array([5.0, 5.0]) - one_round(ft.fedopt(ft.client.sgd(0.02), correction="local"))
    joint = np.array([5.0, 5.0]) - one_round(ft.fedopt(ft.client.sgd(0.02), correction="joint"))
    np.testing.assert_allclose(joint, local / np.mean(1 / np.array(STEPS)), rtol=1e-12)


@pytest.mark.parametrize("correction", ["none", "joint"])
def test_scaling_the_loss_leaves_restarted_adam_without_epsilon_unchanged(correction):
    adam = ft.fedopt(ft.client.adam(1e-3, epsilon=0.0), correction=correction)
    run = lambda scale: (
        ft.train(ft.tasks.quadratic(scale * np.array(HESSIANS), MINIMA), adam, rounds=5, local_steps=STEPS).params
    )
    np.testing.assert_allclose(run(1.0), run(1000.0), rtol=1e-10)


def test_client_order_does_not_change_the_result():
    method, order = ft.fedopt(ft.client.adam(1e-2)), [2, 0, 1]
    straight = one_round(method)
    shuffled = ft.train(
        ft.tasks.quadratic([HESSIANS[i] for i in order], [MINIMA[i] for i in order]),
        method,
        rounds=1,
        local_steps=[STEPS[i] for i in order],
    ).params
    np.testing.assert_allclose(straight, shuffled, rtol=1e-12)


@pytest.mark.slow
def test_compilation_does_not_change_the_result():
    task, method = ft.tasks.quadratic(), ft.fedopt(ft.client.adagrad(1e-2))
    run = lambda: ft.train(task, method, rounds=1, local_steps=[1, 2]).params
    with jax.disable_jit():
        plain = run()
    np.testing.assert_allclose(run(), plain, rtol=1e-12)


@pytest.mark.parametrize("state", ["restart", "inherit"])
def test_the_result_does_not_depend_on_the_number_of_lanes(state):
    task = ft.tasks.quadratic(HESSIANS, MINIMA, noise=1.0)
    method = ft.fedopt(ft.client.adam(1e-2), client_state=state)
    one, two, three = (ft.train(task, method, rounds=3, local_steps=STEPS, lanes=lanes).params for lanes in (1, 2, 3))
    np.testing.assert_allclose(one, three, rtol=1e-12)
    np.testing.assert_allclose(two, three, rtol=1e-12)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    task, method = ft.tasks.quadratic(noise=1.0), ft.fedopt(ft.client.sgd(1e-2))
    a, b, c = (ft.train(task, method, rounds=3, local_steps=5, seed=seed).params for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).all()


def test_a_learning_rate_can_be_a_schedule_of_the_round():
    stopped = lambda round_index: jnp.where(round_index < 2, 1e-2, 0.0)
    task = ft.tasks.quadratic()
    after_two = ft.train(task, ft.fedopt(ft.client.adagrad(1e-2)), rounds=2, local_steps=3).params
    scheduled = ft.train(task, ft.fedopt(ft.client.adagrad(stopped)), rounds=7, local_steps=3).params
    np.testing.assert_allclose(scheduled, after_two, rtol=1e-12)


def test_rate_multipliers_scale_the_rate_and_the_trace_equally():
    """One step of SGD with joint correction: Δ_i/N_i = η g_i for every γ_i; the common scale is 1/mean(1/γ)."""
    gammas = [0.5, 1.0, 4.0]
    task = ft.tasks.quadratic(HESSIANS, MINIMA)
    got = ft.train(task, ft.fedopt(ft.client.sgd(1e-2)), rounds=1, local_steps=1, rate_multipliers=gammas).params
    gradient = np.mean(np.array(HESSIANS) * (5.0 - np.array(MINIMA)), axis=0)
    np.testing.assert_allclose(got, 5.0 - 1e-2 * gradient / np.mean(1 / np.array(gammas)), rtol=1e-12)


# --- sampling ---------------------------------------------------------------------------------------------------------

SIZES = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
UPDATES = np.array([5.0, -1.0, 2.0, 0.0, 1.0])
OBJECTIVE = (SIZES * UPDATES).sum() / SIZES.sum()  # the weighted objective's update


def expected(sample, weigh_by_size, cohort, draws=20_000):
    """Mean over many cohorts of the cohort's mean update, and its standard error."""
    keys = jax.random.split(jax.random.key(3), draws)
    sizes = client_sizes(SIZES)
    draw = lambda key: sample.draw(Context(0, key, len(SIZES), cohort), sizes, None).clients
    chosen = np.asarray(jax.vmap(draw)(keys))
    w = SIZES[chosen] if weigh_by_size else np.ones(chosen.shape)
    means = (w * UPDATES[chosen]).sum(1) / w.sum(1)
    return means.mean(), means.std() / draws**0.5


@pytest.mark.parametrize("cohort", [1, 2, 4])
def test_by_size_sampling_with_a_uniform_mean_is_unbiased_at_any_cohort_size(cohort):
    mean, error = expected(by_size(), False, cohort)
    assert abs(mean - OBJECTIVE) < 4 * error


def test_uniform_sampling_with_normalised_weights_is_a_ratio_estimate_whose_bias_vanishes_at_full_participation():
    means, errors = zip(*(expected(uniform(), True, cohort) for cohort in (1, 2, 4, 5)))
    assert abs(means[0] - UPDATES.mean()) < 4 * errors[0]  # weights cancel in a cohort of one: E = plain mean
    biases = [abs(mean - OBJECTIVE) for mean in means]
    assert biases[0] > biases[1] > biases[2] > biases[3] == pytest.approx(0.0, abs=1e-12)


def test_uniform_sampling_draws_every_client_at_most_once_and_with_equal_probability():
    keys = jax.random.split(jax.random.key(0), 5_000)
    sizes = client_sizes(SIZES)
    draw = lambda key: uniform().draw(Context(0, key, len(SIZES), 2), sizes, None).clients
    chosen = np.asarray(jax.vmap(draw)(keys))
    assert (chosen[:, 0] != chosen[:, 1]).all()
    np.testing.assert_allclose(np.bincount(chosen.ravel()) / chosen.size, 0.2, atol=0.015)


# --- clients that are not finite --------------------------------------------------------------------------------------


def output(update, finite):
    return ClientOutput(
        {"x": Contribution(jnp.asarray(update)), "count": Contribution(jnp.asarray(1.0), UNIFORM)},
        metric_sums={"loss": (jnp.asarray(1.0), jnp.asarray(1.0))},
        memory=(),
        finite=jnp.asarray(finite),
    )


def test_a_client_that_is_not_finite_is_counted_and_adds_nothing():
    weights = lambda own: {METHOD: jnp.asarray(own), UNIFORM: jnp.asarray(1.0)}
    good = weigh(output(2.0, True), weights(3.0), jnp.asarray(True))
    bad = weigh(output(np.inf, False), weights(5.0), jnp.asarray(True))
    sums = total(jax.tree.map(lambda *leaves: jnp.stack(leaves), good, bad))
    assert (float(weighted_sum(sums, "x")), float(mean(sums, "x"))) == (6.0, 2.0)  # 3 · 2, and 3 · 2 / 3
    assert float(weighted_sum(sums, "count")) == 1.0  # this weighting counts every client once
    assert (int(sums.clients), int(sums.dropped), float(sums.metric_sums["loss"][1])) == (1, 1, 1.0)


def exploding(values):
    """One client per entry: the gradient of its loss is its value, so inf makes the client's update infinite.

    The data has the reciprocals, as data itself must be finite.
    """
    return ft.tasks.from_arrays(
        [{"reciprocal": np.array([1 / value])} for value in values],
        init=lambda key: jnp.zeros(()),
        loss=lambda params, example: params / example["reciprocal"],
        weighting="uniform",
    )


def test_a_diverged_client_is_dropped_and_the_others_continue_to_train():
    result = ft.train(exploding([1.0, np.inf, 3.0]), ft.fedopt(ft.client.sgd(0.5)), rounds=1)
    assert result.params == pytest.approx(-0.5 * (1.0 + 3.0) / 2)
    assert list(result.history["dropped"]) == [1]


@pytest.mark.filterwarnings("ignore:round")
def test_a_round_without_finite_updates_is_skipped_with_a_warning_and_many_of_them_stop_the_run():
    with pytest.warns(UserWarning, match=r"round 0: every client's update was not finite"):
        result = ft.train(exploding([np.inf, np.inf]), ft.fedopt(ft.client.sgd(0.5)), rounds=500)
    assert result.params == 0.0
    assert 10 <= len(result.history["clients"]) < 500
