"""Clients in PyTorch, aggregated by fedtrue's own corrections and server optimizers: where a federation ends."""

import jax
import numpy as np
import pytest

import fedtrue as ft
from fedtrue.precision import float64
from tests.torch.clients import torch

HESSIANS, MINIMA = np.array([[1.0, 30.0], [20.0, 1.0]]), np.array([[2.0, 1.0], [-1.0, -2.0]])
STEPS, DECAY = (2, 12), 2.0
MINIMISER = (HESSIANS * MINIMA).mean(0) / HESSIANS.mean(0)
DECAYED_MINIMISER = (HESSIANS * MINIMA).mean(0) / (HESSIANS.mean(0) + DECAY)  # of F(x) + λ/2 ‖x‖²


class Quadratic(torch.nn.Module):
    """½ Σ h (x − m)²."""

    def __init__(self, x, hessian, minimum):
        super().__init__()
        self.x = torch.nn.Parameter(torch.as_tensor(x.copy()))
        self.hessian, self.minimum = torch.as_tensor(hessian), torch.as_tensor(minimum)

    def forward(self):
        return 0.5 * (self.hessian * (self.x - self.minimum) ** 2).sum()


def client_round(x, number, build, correction):
    model = Quadratic(x, HESSIANS[number], MINIMA[number])
    optimizer = build(model.parameters())
    trace = ft.torch.trace(optimizer, correction)
    for _ in range(STEPS[number]):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
    return trace.update(model, {"x": x})


def pseudo_gradient(correction, means, x):
    """What the correction makes of the means; weight decay is corrected by itself, and a share of the server's x."""
    decay = {name.removeprefix("decay."): value for name, value in means.items() if name.startswith("decay.")}
    moved, _ = correction.receive(means, ())
    share = correction.receive(decay, ())[0] if decay else {"x": 0.0}
    return {"x": moved["x"] + share["x"] * x["x"]}


def trained(build, correction, server_rate, rounds=60):
    """The server's weights after rounds of both clients, from the minimiser."""
    correction, server = ft.from_spec(correction, "correction"), ft.server.sgd(server_rate)
    with float64():
        x = {"x": MINIMISER.copy()}
        state = server.init(x)
        for _ in range(rounds):
            sent = [client_round(x["x"], number, build, correction) for number in (0, 1)]
            means = jax.tree.map(lambda one, other: (one + other) / 2, *sent)
            updates, state = server.update(pseudo_gradient(correction, means, x), state, x)
            x = {"x": np.asarray(x["x"] + updates["x"])}
        return x["x"]


CLIENTS = {  # the optimizer at a rate, and a server rate that reaches the fixed point in 60 rounds
    "SGD": (lambda rate: lambda params: torch.optim.SGD(params, lr=rate), lambda rate: 0.006 / rate),
    "momentum": (lambda rate: lambda params: torch.optim.SGD(params, lr=rate, momentum=0.5), lambda rate: 0.004 / rate),
    "Adagrad": (lambda rate: lambda params: torch.optim.Adagrad(params, lr=rate), lambda rate: 0.1 / rate),
    "Adam": (lambda rate: lambda params: torch.optim.Adam(params, lr=rate), lambda rate: 0.1 / rate),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_with_a_correction_clients_of_unequal_steps_approach_the_minimiser_as_the_rate_vanishes(name):
    build, server_rate = CLIENTS[name]
    distance = lambda correction, rate: np.linalg.norm(trained(build(rate), correction, server_rate(rate)) - MINIMISER)
    corrected, nearer = distance("joint", 1e-3), distance("joint", 1e-4)
    assert corrected < 0.03 and nearer == pytest.approx(corrected / 10, rel=0.1)
    assert distance("none", 1e-3) > 0.4 and distance("none", 1e-4) > 0.4


def test_adamws_decay_with_the_local_correction_leads_to_the_minimiser_with_l2():
    def distance(rate):
        build = lambda params: torch.optim.AdamW(params, lr=rate, weight_decay=DECAY)
        return np.linalg.norm(trained(build, "local", 0.06 / rate) - DECAYED_MINIMISER)

    assert distance(1e-3) < 0.03 and distance(1e-4) < 0.003
