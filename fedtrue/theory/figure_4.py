"""The paper's Figure 4, measured: how fast the local steps of each client optimizer contract (Assumption 1).

    h(k) = Σ_i w_i ‖E A_i(x;k) − E A_i(y;k)‖² / ‖x − y‖²      logistic regression on MNIST, some of its writers

x and y are two initial weights of the task, or drawn from N(0, d²): the paper does not say how far apart they are. E is
the mean over batch orders, the same for both. As in the paper, each optimizer has the best of four learning rates. The
paper does not define "best"; here it is the rate with the smallest h at the last k.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.adam_family import adam, yogi
from fedtrue.algorithm.client_optimizer import ClientOptimizer, adagrad, sgd
from fedtrue.data.client_data import ClientData
from fedtrue.intervals import student_half_width
from fedtrue.tasks.mnist import mnist
from fedtrue.tasks.task import Task
from fedtrue.theory.contraction import contraction_of
from fedtrue.types import Params

OPTIMIZERS: Mapping[str, Callable[[float], ClientOptimizer]] = {
    "SGD": sgd,  # the first one is what the others are compared with
    "Adagrad": adagrad,
    "Adam": adam,
    "Yogi": yogi,
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


def measure(
    task: Task,
    steps: int = STEPS,
    orders: int = ORDERS,
    starts: int = STARTS,
    deviations: Sequence[float | None] = (None,),
) -> dict[str, Any]:
    """h(k) of every optimizer at every learning rate: mean and standard deviation over `starts` pairs of starts.

    `deviations`: of the normal distributions of the starts; None for the task's initial weights. The result is one JSON
    document, from which the figure can be drawn again.
    """
    return {
        "source": task.source,
        "clients": len(task.train),
        "batch_size": task.batch_size,
        "orders": orders,
        "starts": starts,
        "steps": steps,
        "curves": [
            {"optimizer": name, "rate": rate, **({} if deviation is None else {"start_deviation": deviation}), **curve}
            for name, optimizer in OPTIMIZERS.items()
            for rate in RATES
            for deviation, curve in _over_starts(task, optimizer(rate), steps, orders, starts, deviations)
        ],
    }


def _over_starts(
    task: Task,
    optimizer: ClientOptimizer,
    steps: int,
    orders: int,
    starts: int,
    deviations: Sequence[float | None],
) -> list[tuple[float | None, dict[str, list[float]]]]:
    """For each deviation, the curve of its mean, the deviation over starts, and the last h of each pair of starts."""
    weights = task.client_weights()
    measure_pair = contraction_of(task, optimizer, steps)

    def curve(deviation: float | None) -> dict[str, list[float]]:
        contractions = []
        for pair in range(starts):
            x, y = (_start(task, 2 * pair + start, deviation) for start in range(2))
            h = measure_pair(x, y, samples=orders, seed=pair).h
            contractions.append(np.average(h, axis=0, weights=weights))
        spread = np.std(contractions, axis=0, ddof=1) if starts > 1 else np.zeros(steps)
        last = [float(found[-1]) for found in contractions]
        return {"h": _rounded(np.mean(contractions, axis=0)), "deviation": _rounded(spread), "last": last}

    return [(deviation, curve(deviation)) for deviation in deviations]


def _start(task: Task, number: int, deviation: float | None) -> Params:
    key = jax.random.key(number)
    params = task.init(key)
    if deviation is None:
        return params
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    drawn = [deviation * jax.random.normal(k, w.shape, w.dtype) for k, w in zip(keys, leaves)]
    return jax.tree.unflatten(structure, drawn)


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in values]


def best_curves(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each optimizer, the curve that is lowest at the last k; one that is not finite there counts as infinite."""
    last = lambda curve: curve["h"][-1] if np.isfinite(curve["h"][-1]) else np.inf
    names = dict.fromkeys(map(_name, document["curves"]))
    return {name: min((c for c in document["curves"] if _name(c) == name), key=last) for name in names}


def _name(curve: Mapping[str, Any]) -> str:
    """'Adam', or 'Adam, starts 0.3'."""
    deviation = curve.get("start_deviation")
    return str(curve["optimizer"]) if deviation is None else f"{curve['optimizer']}, starts {deviation:g}"


def rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table: one row per optimizer, with its best learning rate, h at some steps, and the last h at every rate."""
    steps, best = document["steps"], best_curves(document)
    table = []
    for name, curve in best.items():
        at_steps = {f"h({k})": curve["h"][k - 1] for k in (*TABLE_STEPS, steps) if k <= steps}
        at_rates = {c["rate"]: c["h"][-1] for c in document["curves"] if _name(c) == name}
        numbers = {
            "best rate": curve["rate"],
            **at_steps,
            "± over starts": curve["deviation"][-1],
            **_difference(curve, best[_name({**curve, "optimizer": document["curves"][0]["optimizer"]})]),
            **{f"h({steps}) at {rate:g}": h for rate, h in at_rates.items()},
        }
        table.append({"method": name, "numbers": numbers})
    return table


def _difference(curve: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, float]:
    """From the first optimizer's curve at the last k, over the same starts, if the document has them."""
    if len(curve.get("last", ())) < 2:
        return {}
    differences = [own - other for own, other in zip(curve["last"], first["last"])]
    half = student_half_width(differences)
    return {f"difference from {first['optimizer']}": fmean(differences), "± 95 %": float(half or 0.0)}
