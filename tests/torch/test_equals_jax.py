"""A client in PyTorch sends what the same client in JAX sends."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.algorithm.step_options import StepOptions
from tests.torch import twins
from tests.torch.clients import RATE, Case, assert_same, jax_update, torch, torch_update

sgd, adam = torch.optim.SGD, torch.optim.Adam
LIKE_TORCH = {"epsilon": 1e-3, "epsilon_after_correction": True}  # a large ε, so that its place matters
DECAYED = StepOptions(weight_decay=0.3)


def case(optimizer, client, decay=0.0, **options):
    return Case(lambda params: optimizer(params, lr=RATE, **options), client, decay)


CASES = {
    "SGD": case(sgd, ft.client.sgd(RATE)),
    "SGD, momentum": case(sgd, ft.client.momentum(RATE, 0.9, dampening=0.0), momentum=0.9),
    "SGD, dampening": case(sgd, twins.dampened(RATE, 0.9, 0.3), momentum=0.9, dampening=0.3),
    "SGD, Nesterov": case(
        sgd, ft.client.momentum(RATE, 0.8, dampening=0.0, nesterov=True), momentum=0.8, nesterov=True
    ),
    "SGD, weight decay": case(sgd, ft.client.momentum(RATE, 0.9, dampening=0.0), 0.1, momentum=0.9, weight_decay=0.1),
    "ASGD": case(
        torch.optim.ASGD,
        ft.client.sgd(RATE, within_round=lambda k: (1 + 2.0 * RATE * k) ** -0.75, weight_decay=2.0),
        lambd=2.0,
    ),
    "Adagrad": case(torch.optim.Adagrad, ft.client.adagrad(RATE, 1e-3, initial_accumulator=0.0), eps=1e-3),
    "Adagrad, from 0.1": case(
        torch.optim.Adagrad, ft.client.adagrad(RATE, 1e-3), eps=1e-3, initial_accumulator_value=0.1
    ),
    "Adagrad, rate decay": case(
        torch.optim.Adagrad,
        ft.client.adagrad(RATE, 1e-3, initial_accumulator=0.0, within_round=lambda k: 1 / (1 + 0.2 * k)),
        eps=1e-3,
        lr_decay=0.2,
    ),
    "Adagrad, weight decay": case(
        torch.optim.Adagrad, ft.client.adagrad(RATE, 1e-3, initial_accumulator=0.0), 0.1, eps=1e-3, weight_decay=0.1
    ),
    "RMSprop": case(torch.optim.RMSprop, ft.client.rmsprop(RATE, 0.9, 1e-3), alpha=0.9, eps=1e-3),
    "RMSprop, centered": case(
        torch.optim.RMSprop, twins.rmsprop(RATE, 0.9, 1e-3, True, 0.0), alpha=0.9, eps=1e-3, centered=True
    ),
    "RMSprop, momentum": case(
        torch.optim.RMSprop, twins.rmsprop(RATE, 0.9, 1e-3, False, 0.8), alpha=0.9, eps=1e-3, momentum=0.8
    ),
    "Adadelta": case(torch.optim.Adadelta, twins.adadelta(RATE, 0.8, 1e-3), rho=0.8, eps=1e-3),
    "Adam": case(adam, ft.client.adam(RATE, **LIKE_TORCH), eps=1e-3),
    "Adam, AMSGrad": case(
        adam, ft.client.amsgrad(RATE, 0.8, 0.9, **LIKE_TORCH), betas=(0.8, 0.9), eps=1e-3, amsgrad=True
    ),
    "Adam, weight decay": case(adam, ft.client.adam(RATE, **LIKE_TORCH), 0.1, eps=1e-3, weight_decay=0.1),
    "AdamW": case(torch.optim.AdamW, ft.client.adam(RATE, **LIKE_TORCH, weight_decay=0.3), eps=1e-3, weight_decay=0.3),
    "AdamW, AMSGrad": case(
        torch.optim.AdamW,
        ft.client.amsgrad(RATE, **LIKE_TORCH, weight_decay=0.3),
        eps=1e-3,
        weight_decay=0.3,
        amsgrad=True,
    ),
    "NAdam": case(torch.optim.NAdam, twins.nadam(RATE, 0.9, 0.99, 1e-3, 4e-3), betas=(0.9, 0.99), eps=1e-3),
    "NAdam, decoupled": case(
        torch.optim.NAdam,
        twins.nadam(RATE, 0.9, 0.99, 1e-3, 4e-3, options=DECAYED),
        betas=(0.9, 0.99),
        eps=1e-3,
        weight_decay=0.3,
        decoupled_weight_decay=True,
    ),
    "RAdam": case(torch.optim.RAdam, twins.radam(RATE, 0.9, 0.99, 1e-3), betas=(0.9, 0.99), eps=1e-3),
    "Adamax": case(torch.optim.Adamax, twins.adamax(RATE, 0.9, 0.99, 1e-3), betas=(0.9, 0.99), eps=1e-3),
}
if hasattr(torch.optim, "Adafactor"):  # from 2.5 on
    CASES["Adafactor"] = case(
        torch.optim.Adafactor,
        twins.adafactor(RATE, -0.8, 1e-3, 0.05, 1.0, options=DECAYED),
        eps=(1e-3, 0.05),
        weight_decay=0.3,
    )


COSTLY = "Adafactor"  # to compile


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == COSTLY else name for name in CASES]
)
def test_both_send_the_same(name):
    """Δ/N and 1/N after six steps, in float64; and what is sent of decoupled weight decay."""
    entry = CASES[name]
    assert_same(torch_update(entry.build), jax_update(entry.client, decay=entry.decay), rtol=1e-7)


@pytest.mark.parametrize("name", ["SGD, Nesterov", "RMSprop", "Adagrad", "AdamW", "Adam"])
def test_both_send_the_same_in_float32(name):
    entry, dtype = CASES[name], torch.float32
    found = torch_update(entry.build, dtype)
    assert all(leaf.dtype == np.float32 for part in found.values() for leaf in part.values())
    assert_same(found, jax_update(entry.client, dtype=dtype, decay=entry.decay), rtol=1e-5)
