"""The fast path equals Algorithm 1 in plain NumPy (examples/pseudocode_twin.py)."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

import fedtrue as ft

TWIN = Path(__file__).parents[2] / "examples" / "pseudocode_twin.py"
spec = importlib.util.spec_from_file_location("pseudocode_twin", TWIN)
assert spec and spec.loader
twin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(twin)

HESSIANS, MINIMA = [[1.0, 30.0], [20.0, 1.0], [5.0, 2.0]], [[2.0, 1.0], [-1.0, -2.0], [0.5, 0.0]]
WEIGHTS, STEPS, GAMMAS, RATE = [0.2, 0.5, 0.3], [2, 7, 4], [1.0, 0.5, 2.0], 0.02
GRADIENTS = [lambda x, h=h, m=m: h * (x - m) for h, m in zip(np.array(HESSIANS), np.array(MINIMA))]
TASK = ft.tasks.quadratic(HESSIANS, MINIMA, weights=WEIGHTS)

# every optimizer with every correction and trace; every state strategy with every optimizer that has a state
CASES = [
    *itertools.product(
        ("sgd", "momentum", "adagrad", "adam", "yogi", "rmsprop"),
        (("none", "exact"), ("local", "paper"), ("joint", "exact")),
        ("restart",),
    ),
    *itertools.product(("momentum", "adagrad", "adam", "yogi"), (("joint", "exact"),), ("sync", "inherit")),
    *itertools.product(("adam",), (("none", "exact"), ("local", "exact"), ("joint", "paper")), ("sync", "inherit")),
]


def marked(optimizer, corrected, state):
    """`make test` has every optimizer under `joint`, every correction with SGD and Adam, every state with Adam."""
    kept = optimizer == "adam" or (state == "restart" and (optimizer == "sgd" or corrected[0] == "joint"))
    return pytest.param(optimizer, corrected, state, marks=() if kept else pytest.mark.slow)


@pytest.mark.parametrize("optimizer, corrected, state", [marked(*case) for case in CASES])
def test_three_rounds_equal_those_of_the_pseudocode(optimizer, corrected, state):
    correction, trace = corrected
    method = ft.fedopt(getattr(ft.client, optimizer)(RATE), correction=correction, trace=trace, client_state=state)
    fast = ft.train(TASK, method, rounds=3, local_steps=STEPS, rate_multipliers=GAMMAS)
    slow = twin.federate(
        np.array([5.0, 5.0]), GRADIENTS, WEIGHTS, optimizer, RATE, STEPS, GAMMAS, 3, correction, trace, state
    )
    np.testing.assert_allclose(fast.params, slow, rtol=1e-12)


OPTIONS = {"clip_norm": 9.0, "weight_decay": 0.4}  # gradients have norms of 4 to 120 here


@pytest.mark.parametrize(
    "optimizer, correction, trace, state",
    [
        ("sgd", "none", "exact", "restart"),
        ("momentum", "joint", "exact", "inherit"),
        ("adagrad", "local", "exact", "restart"),
        ("adam", "joint", "exact", "restart"),
        ("adam", "joint", "paper", "sync"),
    ],
)
def test_schedules_clipping_and_weight_decay_equal_those_of_the_pseudocode(optimizer, correction, trace, state):
    client = getattr(ft.client, optimizer)(RATE, within_round=ft.schedules.linear(1.0, 0.2), **OPTIONS)
    method = ft.fedopt(client, correction=correction, trace=trace, client_state=state)
    fast = ft.train(TASK, method, rounds=3, local_steps=STEPS, rate_multipliers=GAMMAS)
    slow = twin.federate(
        np.array([5.0, 5.0]), GRADIENTS, WEIGHTS, optimizer, RATE, STEPS, GAMMAS, 3, correction, trace, state,
        clip=9.0, decay=0.4, within=lambda share: 1.0 - 0.8 * share,
    )  # fmt: skip
    np.testing.assert_allclose(fast.params, slow, rtol=1e-12)


def test_lagged_adagrad_equals_that_of_the_pseudocode():
    method = ft.fedopt(ft.client.adagrad(RATE, lagged=True), correction="joint")
    fast = ft.train(TASK, method, rounds=3, local_steps=STEPS, rate_multipliers=GAMMAS)
    slow = twin.federate(
        np.array([5.0, 5.0]), GRADIENTS, WEIGHTS, "adagrad", RATE, STEPS, GAMMAS, 3, "joint", "exact", "restart",
        lagged=True,
    )  # fmt: skip
    np.testing.assert_allclose(fast.params, slow, rtol=1e-12)
