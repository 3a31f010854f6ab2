"""The paper's Figure 4, measured anew: how fast each client optimizer forgets where it started (Assumption 1).

    h(k) = Σ_i w_i ‖E A_i(x;k) − E A_i(y;k)‖² / ‖x − y‖²      logistic regression on MNIST, a few writers

x and y are two of the task's own starts; E is the mean over batch orders, the same for both. As in the paper every
optimizer has the best of four rates, "best" being ours to define: the smallest h at the last k.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm import client_optimizer as client
from fedtrue.data.client_data import ClientData
from fedtrue.report.canvas import picture
from fedtrue.report.palette import COLOURS, line_style
from fedtrue.runner.folder import origin
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
STEPS = 100  # of the paper's axis nothing is known: its LaTeX comes without the picture
WRITERS, ORDERS, STARTS = 10, 8, 3
SHOWN = (1, 3, 10, 30, 100, 300)  # in the table, beside the last
DIGITS = 6  # kept of each h


def writers(count: int = WRITERS) -> Task:
    """MNIST with `count` of its writers, drawn once; in float64, as all of the theory."""
    task = mnist(dtype=jnp.float64)
    drawn = np.random.default_rng(0).choice(len(task.train), count, replace=False)
    images = [task.train.client(index) for index in np.sort(drawn)]  # a copy: the columns hold the others' too
    train = [{name: np.asarray(column) for name, column in own.items()} for own in images]
    return replace(task, train=ClientData.from_clients(train))


def in_one_hand() -> Task:
    """All of MNIST's train images as one client."""
    return mnist(dtype=jnp.float64, clients=1)


def measure(task: Task, steps: int = STEPS, orders: int = ORDERS, starts: int = STARTS) -> dict[str, Any]:
    """h(k) of every optimizer at every rate, mean and deviation over `starts` pairs of starts: a document to keep."""
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
        "origin": origin(),
    }


def _over_starts(
    task: Task, optimizer: client.ClientOptimizer, steps: int, orders: int, starts: int
) -> dict[str, list[float]]:
    weights = task.client_weights()
    between = contraction_of(task, optimizer, steps)
    measured = []
    for pair in range(starts):
        x, y = (task.init(jax.random.key(2 * pair + place)) for place in range(2))
        h = between(x, y, samples=orders, seed=pair).h
        measured.append(np.average(h, axis=0, weights=weights))
    deviation = np.std(measured, axis=0, ddof=1) if starts > 1 else np.zeros(steps)
    return {"h": _rounded(np.mean(measured, axis=0)), "deviation": _rounded(deviation)}


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def read(path: Path) -> dict[str, Any]:
    """A document of `measure`, from the file it was kept in, be it compressed."""
    try:
        text = path.read_bytes()
        document = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)
        found = rows(document)
    except FileNotFoundError:
        raise ValueError(f"{path} is not there: `fedtrue theory contraction --json > {path}` makes it") from None
    except (KeyError, TypeError, ValueError, gzip.BadGzipFile):
        found = []
    if not found:
        raise ValueError(f"{path} is not what `fedtrue theory contraction --json` prints: make it again")
    return dict(document)


def best(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each optimizer the curve that is lowest at the last k; one that is not finite there never is."""
    last = lambda curve: curve["h"][-1] if np.isfinite(curve["h"][-1]) else np.inf
    names = dict.fromkeys(curve["optimizer"] for curve in document["curves"])
    return {name: min((c for c in document["curves"] if c["optimizer"] == name), key=last) for name in names}


def rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table: of each optimizer its best rate, h on the way, and the last h at every rate."""
    steps = document["steps"]
    found = []
    for name, curve in best(document).items():
        way = {f"h({k})": curve["h"][k - 1] for k in (*SHOWN, steps) if k <= steps}
        others = {c["rate"]: c["h"][-1] for c in document["curves"] if c["optimizer"] == name}
        numbers = {
            "best rate": curve["rate"],
            **way,
            "± over starts": curve["deviation"][-1],
            **{f"h({steps}) at {rate:g}": h for rate, h in others.items()},
        }
        found.append({"method": name, "numbers": numbers})
    return found


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Each optimizer at its best rate, the steps on a logarithmic axis; the bands are the deviation over starts."""
    k = np.arange(1, document["steps"] + 1)
    with picture(path, (8, 4.5)) as figure:
        axes = figure.subplots()
        for place, (name, curve) in enumerate(best(document).items()):
            h, deviation = np.asarray(curve["h"]), np.asarray(curve["deviation"])
            label = f"{name}, η = {curve['rate']:g}"
            axes.semilogx(k, h, color=COLOURS[place], linestyle=line_style(place), linewidth=2, label=label)
            axes.fill_between(k, h - deviation, h + deviation, color=COLOURS[place], alpha=0.2, linewidth=0)
        axes.axhline(1, color="#999999", linewidth=1, linestyle=":")
        axes.set(xlabel="local steps k", ylabel="h(k): below 1 is a contraction", xlim=(1, document["steps"]))
        axes.grid(alpha=0.3, which="both")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower left")
