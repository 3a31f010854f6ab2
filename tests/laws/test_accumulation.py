"""Gradient accumulation: k batches per step equal one batch of k times as many examples."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.cli import main

SIZES = [7, 3, 13]  # with 6 examples per step the last steps have 1, 3 and 1: two batches of 2 are empty then
RNG = np.random.default_rng(0)
CLIENTS = [{"x": RNG.normal(size=(n, 3)), "y": RNG.normal(size=n), "tokens": RNG.integers(0, 5, n)} for n in SIZES]
METHOD = ft.fedopt(ft.client.adam(0.05, clip_norm=1.0))


def least_squares(**settings):
    return ft.tasks.from_arrays(
        CLIENTS,
        init=lambda key: jnp.zeros(3),
        loss=lambda params, example: (example["x"] @ params - example["y"]) ** 2,
        local_epochs=2,
        float64=True,
        **settings,
    )


def per_token(task):
    """The mean over all tokens of a batch: an example counts as often as it has tokens, some of them never."""

    def loss(params, batch):
        count = batch["tokens"] * batch["mask"]
        total = jnp.sum((batch["x"] @ params - batch["y"]) ** 2 * count)
        return total / jnp.maximum(jnp.sum(count), 1), {"loss": (total, jnp.sum(count))}

    return replace(task, loss=loss)


def summed(task):
    """The sum over the examples of a batch, as the loss of the tag tasks."""

    def loss(params, batch):
        mean, sums = task.loss(params, batch)
        return mean * sums["loss"][1], sums

    return replace(task, loss=loss, summed_loss=True, weighting="batches")


def without_sums(task):
    """A loss that records nothing: its batches count by their examples."""
    return replace(task, loss=lambda params, batch: (task.loss(params, batch)[0], {}))


@pytest.mark.parametrize(
    "of", [lambda task: task, per_token, summed, without_sums], ids=["examples", "tokens", "summed", "no sums"]
)
def test_three_batches_of_two_equal_one_of_six(of):
    once, accumulated = of(least_squares(batch_size=6)), of(least_squares(batch_size=2, accumulate=3))
    np.testing.assert_array_equal(once.steps_of_clients(), [4, 2, 6])  # optimizer steps: 2 epochs of ⌈n/6⌉
    np.testing.assert_array_equal(accumulated.steps_of_clients(), [4, 2, 6])
    one, other = (ft.train(task, METHOD, rounds=3) for task in (once, accumulated))
    np.testing.assert_allclose(other.params, one.params, rtol=1e-12)
    if "loss" in one.history:
        np.testing.assert_allclose(other.history["loss"], one.history["loss"], rtol=1e-12)


def test_tag_tasks_declare_that_their_loss_is_a_sum():
    assert ft.tasks.synthetic_tags(clients=4, words=50, tags=5).summed_loss


def test_the_gradient_at_the_start_is_accumulated_too():
    """SCAFFOLD's option I."""
    method = ft.methods.scaffold(ft.client.sgd(0.05), option="I")
    one, other = (
        ft.train(least_squares(**split), method, rounds=3).params
        for split in ({"batch_size": 6}, {"batch_size": 2, "accumulate": 3})
    )
    np.testing.assert_allclose(other, one, rtol=1e-12)


def test_the_command_line_takes_it_and_records_it(tmp_path):
    flags = "synthetic_tags --method fedavg --client-rate 0.5 --rounds 1 --cohort 2 --batch-size 5 --accumulate 4"
    options = ["--set", "task_options.clients=4", "--set", "task_options.words=50", "--set", "task_options.tags=5"]
    assert main(["run", *flags.split(), *options, "--out", str(tmp_path / "run")]) == 0
    assert ft.load_run(tmp_path / "run").config["accumulate"] == 4


def test_less_than_one_batch_is_refused(capsys):
    assert main(["run", "quadratic", "--accumulate", "0"]) == 2
    assert "accumulate must be an integer of at least 1, not 0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="accumulate is 0: choose at least 1"):
        least_squares(accumulate=0)
