"""Evaluation by streaming: metric sums over batches, so memory does not grow with the test set.

Metrics are taken example by example (vectorised) and summed twice: over all, and per client, since an average hides who
is left behind.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.batches import device_rows
from fedtrue.data.client_data import ClientData
from fedtrue.tasks.task import Task

Progress = Callable[[int, int, Mapping[str, float]], None]
WORST = 0.1  # the worst tenth of the clients


@dataclass(frozen=True)
class Evaluation:
    """Means over all examples, and over each client's own."""

    metrics: dict[str, float]
    per_client: dict[str, np.ndarray]  # name → one mean a client, NaN where nothing counts

    def quantiles(self, name: str) -> dict[str, float]:
        """How a metric spreads over the clients: quantiles, and the mean of the lowest tenth."""
        values = np.sort(self.per_client[name][np.isfinite(self.per_client[name])])
        if not len(values):
            return {}
        lowest = values[: max(1, int(WORST * len(values)))].mean()
        named = dict(zip(("p10", "median", "p90"), np.quantile(values, [0.1, 0.5, 0.9]).tolist()))
        return {"lowest_tenth": float(lowest), **named}


def means(sums: Mapping[str, Any]) -> dict[str, Any]:
    """{name: (total, count)} → {name: mean}; nothing counted gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return {name: np.divide(*(np.asarray(part, np.float64) for part in pair)) for name, pair in sums.items()}


class Evaluator:
    """`evaluator(params, data)`, compiled once; with `cells`, many models at once: the first axis of their params."""

    def __init__(self, task: Task, cells: bool = False):
        self.task, self.cells = task, cells
        sums = jax.vmap(self._sums_of_examples, (0, None, None)) if cells else self._sums_of_examples
        self._example_sums = jax.jit(sums)

    def _sums_of_examples(self, params: Any, batch: Any, key: Any) -> Any:
        def of_one(example: Any) -> Any:
            alone = jax.tree.map(lambda leaf: leaf[None], example)
            return self.task.metrics(params, {**alone, "key": key})

        return jax.vmap(of_one)(batch)

    def __call__(self, params: Any, data: ClientData, limit: int | None = None) -> Evaluation:
        """Over all of `data`, or its first `limit` examples."""
        return self.of_cells(params, data, limit)[0]

    def of_splits(self, params: Any) -> list[dict[str, Evaluation]]:
        """For each model, the splits that the task holds out."""
        held_out = {"validation": self.task.validation, "test": self.task.test}
        splits = {name: data for name, data in held_out.items() if data is not None}
        found = [self.of_cells(params, data, self.task.evaluation_limit) for data in splits.values()]
        models = len(jax.tree.leaves(params)[0]) if self.cells else 1
        return [dict(zip(splits, (of_split[model] for of_split in found))) for model in range(models)]

    def of_cells(self, params: Any, data: ClientData, limit: int | None = None) -> list[Evaluation]:
        """One evaluation a model; the data is read once for all of them."""
        clients, key, totals = len(data), jax.random.key(0), None
        for rows, client, real in _chunks(data, self.task.evaluation_batch_size, limit):
            mask = jnp.asarray(real, jnp.result_type(float))
            batch = {**device_rows(data.columns, rows), "mask": mask}
            sums = self._example_sums(params, batch, key)
            of_clients = jax.tree.map(partial(_per_client, client, real, clients), sums)
            totals = of_clients if totals is None else jax.tree.map(np.add, totals, of_clients)
        assert totals is not None, "client data has at least one example"
        models = range(len(jax.tree.leaves(totals)[0]))
        return [_evaluation(jax.tree.map(operator.itemgetter(model), totals)) for model in models]


def _evaluation(totals: Any) -> Evaluation:
    """From (total, count) of every metric, one entry a client."""
    overall = means(jax.tree.map(np.sum, totals))
    return Evaluation({name: float(value) for name, value in overall.items()}, means(totals))


def _per_client(client: np.ndarray, real: np.ndarray, clients: int, values: Any) -> np.ndarray:
    """(models, examples) or (examples,) → (models, clients): the sum over each client's real examples."""
    of_models = np.atleast_2d(np.asarray(values, np.float64))[:, real]
    return np.stack([np.bincount(client[real], of_model, clients) for of_model in of_models])


def _chunks(data: ClientData, size: int, limit: int | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of the columns, the client of each, and which are real: the last chunk is filled up with its first row."""
    ends = np.cumsum(data.sizes)
    examples = int(min(ends[-1], limit or ends[-1]))
    for first in range(0, examples, size):
        place = np.arange(first, first + size)
        real = place < examples
        place = np.where(real, place, first)
        client = np.searchsorted(ends, place, side="right")
        yield data.starts[client] + place - (ends[client] - data.sizes[client]), client, real
