"""A loss that is summed over a batch: under a correction, clients weighted by their batches reach the objective."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.theory import measured_fixed_point

EXAMPLES, BATCH_SIZE = (3, 1000), 100  # K = 1 and 10 batches


def task(**settings):
    """Minima at 0 and 1: the minimiser of the sum over all examples is 1000/1003."""
    mean = ft.tasks.from_arrays(
        [{"a": np.full((n, 1), float(at))} for at, n in enumerate(EXAMPLES)],
        init=lambda key: jnp.zeros(1),
        loss=lambda x, example: ((x - example["a"]) ** 2).sum() / 2,
        batch_size=BATCH_SIZE,
    )

    def loss(x, batch):
        total = (((x - batch["a"]) ** 2).sum(-1) / 2 * batch["mask"]).sum()
        return total, {"loss": (total, batch["mask"].sum())}

    return replace(mean, loss=loss, summed_loss=True, **settings)


def fixed_point(correction, weighting=None):
    method = ft.fedopt(ft.client.sgd(1e-7), correction=correction, weighting=weighting)
    return float(measured_fixed_point(task(weighting="batches"), method).params[0])


@pytest.mark.parametrize("correction", ["local", "joint"])
def test_a_corrected_method_reaches_the_minimiser_of_the_sum_over_all_examples(correction):
    assert fixed_point(correction) == pytest.approx(1000 / 1003, abs=1e-5)


def test_weights_by_examples_count_the_examples_twice():
    """A client's mean batch gradient is n/K times its mean gradient: with weight n it counts n²/K, 9 and 100,000;
    without a correction it takes K such steps and counts n², 9 and 1,000,000."""
    assert fixed_point("joint", "examples") == pytest.approx(100_000 / 100_009, abs=1e-6)
    assert fixed_point("none", "examples") == pytest.approx(1_000_000 / 1_000_009, abs=1e-6)


def test_a_task_with_a_summed_loss_says_so_if_it_is_weighted_by_examples():
    with pytest.raises(ValueError, match='set weighting="batches"'):
        task()


def test_the_tag_tasks_are_weighted_by_batches():
    tags = ft.tasks.synthetic_tags(clients=4, words=50, tags=5)
    sizes = np.asarray(tags.train.sizes)
    np.testing.assert_array_equal(tags.client_weights(), np.ceil(sizes / tags.batch_size))


@pytest.mark.parametrize("report", ["mean_gradient", "intercept"])
def test_reports_of_gradients_reach_it_too(report):
    assert fixed_point({"name": "local", "report": report}) == pytest.approx(1000 / 1003, abs=1e-5)


def test_the_gradient_at_the_servers_weights_is_the_mean_over_batches():
    """150 examples with minimum 1 in batches of 100 and 50, at x = 0: the mean of −100 and −50, not weighted again."""
    one_client = replace(task(weighting="batches"), train=ft.ClientData.from_clients([{"a": np.ones((150, 1))}]))
    method = ft.methods.mimelite(ft.client.momentum(0.0, beta=0.5))
    simulation = ft.Simulation(one_client, method)
    state, _ = simulation.round(simulation.start())
    assert float(state.server.shared["move"][0]) == pytest.approx(0.5 * -75)  # (1−β) times the gradient
