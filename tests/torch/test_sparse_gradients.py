"""Weights without a gradient in some batches: both traces are those of the clients in JAX."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.interface import Loss
from fedtrue.precision import float64
from tests.torch.clients import RATE, assert_same, copy_of, sent_by_jax, torch

ROWS = [[1, 2], [2, 3], [3], [1, 4], [4], [1, 2]]  # rows of the embedding in each batch; row 0 in none, 3 and 4 late
LIKE_TORCH = {"epsilon": 1e-4, "epsilon_after_correction": True}
CASES = {
    "SGD": (torch.optim.SGD, {"momentum": 0.9}, ft.client.momentum(RATE, dampening=0.0)),
    "Adagrad": (torch.optim.Adagrad, {"eps": 1e-4}, ft.client.adagrad(RATE, 1e-4, initial_accumulator=0.0)),
    "RMSprop": (torch.optim.RMSprop, {"eps": 1e-4, "alpha": 0.9}, ft.client.rmsprop(RATE, 0.9, 1e-4)),
    "Adam": (torch.optim.Adam, {"eps": 1e-4}, ft.client.adam(RATE, **LIKE_TORCH)),
    "AdamW": (
        torch.optim.AdamW,
        {"eps": 1e-4, "weight_decay": 0.2},
        ft.client.adam(RATE, **LIKE_TORCH, weight_decay=0.2),
    ),
}


def gradients():
    """One gradient per step, 0 in the rows that its batch does not have."""
    rng = np.random.default_rng(3)
    found = np.zeros((len(ROWS), 5, 2))
    for step, rows in enumerate(ROWS):
        found[step, rows] = rng.normal(size=(len(rows), 2))
    return found


def torch_update(build, trace, sparse):
    torch.manual_seed(4)
    model = torch.nn.Embedding(5, 2, sparse=sparse).double()
    start, optimizer = copy_of(model), build(model.parameters())
    kept = ft.torch.trace(optimizer, trace=trace)
    for gradient, rows in zip(gradients(), ROWS):
        optimizer.zero_grad()
        (torch.as_tensor(gradient[rows]) * model(torch.tensor(rows))).sum().backward()
        optimizer.step()
    return kept.update(model, start)


def jax_update(client, trace):
    torch.manual_seed(4)
    weights = {"weight": torch.nn.Embedding(5, 2).double().weight.detach().numpy()}
    loss = Loss(lambda params, batch: ((params["weight"] * batch["slope"]).sum(), {}), no_sums={})
    with float64():
        slopes = jnp.asarray(gradients())
        batch_at = lambda k: {"slope": slopes[k], "mask": jnp.ones(1)}
        return sent_by_jax(ft.fedopt(client, trace=trace), loss, weights, batch_at, len(ROWS))


@pytest.mark.parametrize("trace", ["first_gradient", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_rows_that_a_batch_does_not_have_count_as_in_jax(name, trace):
    optimizer, options, client = CASES[name]
    found = torch_update(lambda params: optimizer(params, lr=RATE, **options), trace, sparse=False)
    assert_same(found, jax_update(client, trace), rtol=1e-8)


@pytest.mark.parametrize("trace", ["first_gradient", "exact"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad])
def test_sparse_gradients_have_the_trace_of_dense_ones(optimizer, trace):
    build = lambda params: optimizer(params, lr=RATE)
    assert_same(torch_update(build, trace, sparse=True), torch_update(build, trace, sparse=False), rtol=1e-12)


def test_only_the_exact_trace_divides_by_steps_before_the_first_gradient():
    """Row 4 has its first gradient in step 3, and P = 1/ε before: 10⁸ with PyTorch's ε."""
    build = lambda params: torch.optim.Adam(params, lr=RATE)
    shares = [
        torch_update(build, trace, sparse=False)["update"]["weight"][4] / (RATE * gradients()[:, 4].mean(axis=0))
        for trace in ("exact", "first_gradient")
    ]
    assert (np.abs(shares[0]) < 1e-6).all() and (np.abs(shares[1]) > 0.1).all()


def test_weight_decay_that_is_coupled_gives_every_weight_a_gradient():
    """So both traces are equal, but for weights that are 0."""
    build = lambda params: torch.optim.Adam(params, lr=RATE, weight_decay=0.1)
    both = [torch_update(build, trace, sparse=False) for trace in ("first_gradient", "exact")]
    assert_same(*both, rtol=1e-12)
