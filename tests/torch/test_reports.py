"""Means of gradients, and all that a correction asks of a client, from the same trace."""

import numpy as np
import pytest

import fedtrue as ft
from tests.torch.clients import (
    RATE,
    STEPS,
    assert_same,
    batches,
    copy_of,
    jax_update,
    network,
    torch,
    torch_loss,
    train,
)
from tests.torch.clients import torch_update as sent_by_torch

CORRECTIONS = [
    "none",
    "local",
    "joint",
    "joint(beta=0.9)",
    "moments",
    "moments(report=intercept)",
    "local(report=mean_gradient)",
    "local(report=intercept)",
]


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_every_correction_gets_what_it_gets_from_a_client_in_jax(correction):
    build = lambda params: torch.optim.Adam(params, lr=RATE, eps=1e-3)
    client = ft.client.adam(RATE, epsilon=1e-3, epsilon_after_correction=True)
    correction = ft.from_spec(correction, "correction")
    found, wanted = sent_by_torch(build, correction=correction), jax_update(client, correction)
    if "steps" in wanted:
        assert found.pop("steps") == wanted.pop("steps") == STEPS
    assert_same(found, wanted, rtol=1e-7)


def test_a_report_of_gradients_times_the_trace_needs_one_that_is_bounded():
    correction = ft.from_spec("joint(report=mean_gradient)", "correction")
    build = lambda params: torch.optim.Adagrad(params, lr=RATE, eps=1e-3, initial_accumulator_value=0.1)
    client = ft.client.adagrad(RATE, 1e-3, initial_accumulator=0.1)
    assert_same(sent_by_torch(build, correction=correction), jax_update(client, correction), rtol=1e-7)


def watched(correction, build, before_step=lambda trace, model, k: None, **options):
    """What is sent, and the gradients of the loss along the path, before anything is done to them."""
    model = network()
    start, optimizer, gradients = copy_of(model), build(model.parameters()), []
    trace = ft.torch.trace(optimizer, correction, **options)

    def before():
        gradients.append({name: param.grad.numpy().copy() for name, param in model.named_parameters()})
        before_step(trace, model, len(gradients) - 1)

    train(model, optimizer, before)
    return trace.update(model, start), gradients


def weighted_mean(values, weights):
    """Σ n_k value_k / Σ n_k of every parameter."""
    return {name: np.average([value[name] for value in values], axis=0, weights=weights) for name in values[0]}


@pytest.mark.parametrize("weights", [None, [8, 8, 3, 8, 8, 1]])
def test_moments_are_the_means_of_the_gradients_and_of_their_squares(weights):
    def count(trace, model, k):
        if weights:
            trace.count_examples(weights[k])

    sent, gradients = watched("moments", lambda params: torch.optim.RMSprop(params, lr=RATE), count)
    squares = [{name: g**2 for name, g in step.items()} for step in gradients]
    assert sent["steps"] == STEPS and sent["steps"].shape == ()
    assert_same(
        {name: sent[name] for name in ("gradient", "square")},
        {"gradient": weighted_mean(gradients, weights), "square": weighted_mean(squares, weights)},
        rtol=1e-12,
    )


def test_the_intercept_is_that_of_the_line_of_least_squares():
    sent, gradients = watched("local(report=intercept)", lambda params: torch.optim.SGD(params, lr=RATE))
    for name, value in sent["update"].items():
        lines = np.polyfit(np.arange(STEPS), np.stack([g[name].ravel() for g in gradients]), deg=1)
        np.testing.assert_allclose(value.ravel(), RATE * lines[1], rtol=1e-8)  # row 1: the values at k = 0


def test_examples_of_accumulated_batches_add_up_and_stay_until_they_change():
    def count(trace, model, k):
        if k < 2:
            trace.count_examples(2)
            trace.count_examples(3)

    sent, gradients = watched("moments", lambda params: torch.optim.SGD(params, lr=RATE), count)
    assert_same({"g": sent["gradient"]}, {"g": weighted_mean(gradients, None)}, rtol=1e-12)


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
def test_means_are_of_gradients_before_the_traces_clipping(clip):
    def clipped(trace, model, k):
        getattr(trace, clip)(model.parameters(), 0.02)

    sent, gradients = watched("moments", lambda params: torch.optim.SGD(params, lr=RATE), clipped)
    assert_same({"g": sent["gradient"]}, {"g": weighted_mean(gradients, None)}, rtol=1e-10)


def test_means_are_of_the_objective_with_coupled_weight_decay_and_its_sign():
    """g_k = −∇L(x_k) + λ x_k, for an optimizer that maximises L."""
    weights = []
    keep = lambda trace, model, k: weights.append(copy_of(model))
    build = lambda params: torch.optim.Adam(params, lr=RATE, weight_decay=0.2, maximize=True)
    sent, gradients = watched("moments", build, keep)
    steps = [{name: 0.2 * x[name].numpy() - g for name, g in step.items()} for step, x in zip(gradients, weights)]
    assert_same({"g": sent["gradient"]}, {"g": weighted_mean(steps, None)}, rtol=1e-12)


def test_a_missing_gradient_is_a_gradient_of_zero_in_the_means():
    model = network()
    start, optimizer = copy_of(model), torch.optim.SGD(model.parameters(), lr=RATE)
    trace, seen = ft.torch.trace(optimizer, "moments"), []
    for k, (x, y) in enumerate(zip(*batches())):
        optimizer.zero_grad()
        torch_loss(model, x, y).backward()
        if k % 2:
            model[0].bias.grad = None
        seen.append(model[0].bias.grad.numpy().copy() if k % 2 == 0 else np.zeros(5))
        optimizer.step()
    np.testing.assert_allclose(trace.update(model, start)["gradient"]["0.bias"], np.mean(seen, axis=0), rtol=1e-12)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_arrays_belong_to_the_caller(correction):
    sent = sent_by_torch(lambda params: torch.optim.Adam(params, lr=RATE), correction=correction)
    leaves = [leaf for part in sent.values() for leaf in (part.values() if isinstance(part, dict) else [part])]
    assert all(isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.flags.owndata for leaf in leaves)


def test_values_that_are_not_finite_reach_the_server():
    for correction in ("none", "local", "joint", "moments"):
        sent, _ = watched(correction, lambda params: torch.optim.Adam(params, lr=RATE), spoil)
        assert not all(
            np.isfinite(leaf).all()
            for part in sent.values()
            for leaf in (part.values() if isinstance(part, dict) else [part])
        )


def spoil(trace, model, k):
    if k == 2:
        model[2].weight.grad[0, 0] = float("nan")
