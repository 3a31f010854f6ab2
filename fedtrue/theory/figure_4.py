"""The paper's Figure 4, measured: how fast the local steps of each client optimizer contract (Assumption 1).

    h(k) = Σ_i w_i ‖E A_i(x;k) − E A_i(y;k)‖² / ‖x − y‖²      logistic regression on MNIST, some of its writers

x and y are two initial weights of the task; E is the mean over batch orders, the same for both. As in the paper, each
optimizer has the best of four learning rates. The paper does not define "best"; here it is the rate with the smallest h
at the last k.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm import client_optimizer as client
from fedtrue.data.client_data import ClientData
from fedtrue.tasks.mnist import mnist
from fedtrue.tasks.task import Task
from fedtrue.theory.contraction import contraction_of

OPTIMIZERS: Mapping[str, Callable[[float], client.ClientOptimizer]] = {
    "SGD": client.sgd,
    "Adagrad": client.adagrad,
    "Adam": client.adam,
    "Yogi": client.yogi,
}
RATES = (0.5, 0.2, 0.02, 0.002)  # the paper's
STEPS = 100  # the range of the paper's axis is unknown: its LaTeX source does not contain the picture
WRITERS, ORDERS, STARTS = 10, 8, 3
TABLE_STEPS = (1, 3, 10, 30, 100, 300)  # columns of the table, besides the last step
SIGNIFICANT_DIGITS = 6  # of every h that is written


def mnist_writers(count: int = WRITERS) -> Task:
    """MNIST with `count` of its writers, always the same ones, in float64."""
    task = mnist(dtype=jnp.float64)
    writers = np.random.default_rng(0).choice(len(task.train), count, replace=False)
    images = [task.train.client(index) for index in np.sort(writers)]
    # copied: the task's columns also hold the other writers' images
    train = [{name: np.asarray(column) for name, column in writer.items()} for writer in images]
    return replace(task, train=ClientData.from_clients(train))


def mnist_single_client() -> Task:
    """All training images of MNIST as one client."""
    return mnist(dtype=jnp.float64, clients=1)


def measure(task: Task, steps: int = STEPS, orders: int = ORDERS, starts: int = STARTS) -> dict[str, Any]:
    """h(k) of every optimizer at every learning rate: mean and standard deviation over `starts` pairs of starts.

    The result is one JSON document, from which the figure can be drawn again.
    """
    return {
        "source": task.source,
        "clients": len(task.train),
        "batch_size": task.batch_size,
        "orders": orders,
        "starts": starts,
        "steps": steps,
        "curves": [
            {"optimizer": name, "rate": rate, **_over_starts(task, optimizer(rate), steps, orders, starts)}
            for name, optimizer in OPTIMIZERS.items()
            for rate in RATES
        ],
    }


def _over_starts(
    task: Task, optimizer: client.ClientOptimizer, steps: int, orders: int, starts: int
) -> dict[str, list[float]]:
    weights = task.client_weights()
    measure_pair = contraction_of(task, optimizer, steps)
    contractions = []
    for pair in range(starts):
        x, y = (task.init(jax.random.key(2 * pair + start)) for start in range(2))
        h = measure_pair(x, y, samples=orders, seed=pair).h
        contractions.append(np.average(h, axis=0, weights=weights))
    deviation = np.std(contractions, axis=0, ddof=1) if starts > 1 else np.zeros(steps)
    return {"h": _rounded(np.mean(contractions, axis=0)), "deviation": _rounded(deviation)}


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in values]


def best_curves(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each optimizer, the curve that is lowest at the last k; one that is not finite there counts as infinite."""
    last = lambda curve: curve["h"][-1] if np.isfinite(curve["h"][-1]) else np.inf
    names = dict.fromkeys(curve["optimizer"] for curve in document["curves"])
    return {name: min((c for c in document["curves"] if c["optimizer"] == name), key=last) for name in names}


def rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table: one row per optimizer, with its best learning rate, h at some steps, and the last h at every rate."""
    steps = document["steps"]
    table = []
    for name, curve in best_curves(document).items():
        at_steps = {f"h({k})": curve["h"][k - 1] for k in (*TABLE_STEPS, steps) if k <= steps}
        at_rates = {c["rate"]: c["h"][-1] for c in document["curves"] if c["optimizer"] == name}
        numbers = {
            "best rate": curve["rate"],
            **at_steps,
            "± over starts": curve["deviation"][-1],
            **{f"h({steps}) at {rate:g}": h for rate, h in at_rates.items()},
        }
        table.append({"method": name, "numbers": numbers})
    return table
