"""One client's local steps in PyTorch and in JAX: the same network, weights and batches."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.client_update import client_update
from fedtrue.algorithm.interface import Broadcast, Client, Context, Loss
from fedtrue.precision import float64

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedtrue[torch]'")

RATE, STEPS, BATCH, FEATURES, HIDDEN, CLASSES = 0.02, 6, 8, 4, 5, 3


def batches(steps=STEPS, seed=0):
    """(inputs, labels) of every step."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, BATCH, FEATURES)), rng.integers(0, CLASSES, size=(steps, BATCH))


def network(dtype=torch.float64):
    """Two layers; every weight has a gradient in every batch."""
    torch.manual_seed(1)
    layers = torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES)
    return torch.nn.Sequential(*layers).to(dtype)


def copy_of(model):
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def torch_loss(model, x, y):
    dtype = next(model.parameters()).dtype
    return torch.nn.functional.cross_entropy(model(torch.as_tensor(x, dtype=dtype)), torch.as_tensor(y))


def train(model, optimizer, before_step=lambda: None, after_step=lambda: None, steps=STEPS):
    """A user's training loop."""
    for x, y in zip(*batches(steps)):
        optimizer.zero_grad()
        torch_loss(model, x, y).backward()
        before_step()
        optimizer.step()
        after_step()


def torch_update(build, dtype=torch.float64, correction="joint", **options):
    """What a client in PyTorch sends; `build(parameters)` is its optimizer."""
    model = network(dtype)
    start, optimizer = copy_of(model), build(model.parameters())
    trace = ft.torch.trace(optimizer, correction, **options)
    train(model, optimizer)
    return trace.update(model, start)


def jax_loss(decay):
    """The same network's loss; coupled weight decay is a part of it, λ/2 ‖x‖²."""

    def function(params, batch):
        hidden = jnp.tanh(batch["x"] @ params["0.weight"].T + params["0.bias"])
        logits = jax.nn.log_softmax(hidden @ params["2.weight"].T + params["2.bias"])
        mean = -jnp.take_along_axis(logits, batch["y"][:, None], axis=1).mean()
        return mean + decay / 2 * sum(jnp.sum(leaf**2) for leaf in params.values()), {}

    return Loss(function, no_sums={})


def jax_update(client, correction="joint", dtype=torch.float64, trace="first_gradient", decay=0.0):
    """What the same client in JAX sends."""
    x, y = batches()
    weights = {name: weight.numpy() for name, weight in network(dtype).state_dict().items()}
    batch_at = lambda k: {
        "x": jnp.asarray(x[k], jnp.result_type(float)),
        "y": jnp.asarray(y[k]),
        "mask": jnp.ones(BATCH),
    }
    method = ft.fedopt(client, correction=correction, trace=trace)
    with float64(dtype == torch.float64):
        return sent_by_jax(method, jax_loss(decay), weights, batch_at, STEPS)


def sent_by_jax(method, loss, weights, batch_at, steps):
    """The contributions of one client, step by step: a compiled loop would refuse traces that begin as numbers."""
    with jax.disable_jit():
        output = client_update(
            method.phases[0].work(loss),
            Broadcast(jax.tree.map(jnp.asarray, weights), ()),
            Client(0, steps, method.learning_rate(0), 1.0),
            (),
            batch_at,
            Context(0, jax.random.key(0), clients=1, cohort=1),
        )
    return {name: jax.tree.map(np.asarray, contribution.value) for name, contribution in output.contributions.items()}


def assert_same(found, wanted, rtol):
    """Contributions of the same names; one number of JAX stands for a number per parameter."""
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        for key, leaf in value.items() if isinstance(value, dict) else dict.fromkeys(found[name], value).items():
            np.testing.assert_allclose(
                found[name][key], leaf, rtol=rtol, atol=rtol * np.abs(leaf).max(), err_msg=f"{name} {key}"
            )


@dataclass(frozen=True)
class Case:
    """An optimizer of PyTorch and its twin in JAX."""

    build: object  # parameters → torch.optim optimizer
    client: object  # ft.client, or one written by hand in `twins.py`
    decay: float = 0.0  # coupled, a part of the loss in JAX
