"""Evaluation by streaming: metric sums over batches, so memory does not grow with the test set.

Metrics are taken example by example (vectorised) and summed twice: over all, and per client, since an average hides who
is left behind.
"""

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
    """`evaluator(params, data)`; compiled once."""

    def __init__(self, task: Task):
        self.task = task
        self._example_sums = jax.jit(self._sums_of_examples)

    def _sums_of_examples(self, params: Any, batch: Any, key: Any) -> Any:
        def of_one(example: Any) -> Any:
            alone = jax.tree.map(lambda leaf: leaf[None], example)
            return self.task.metrics(params, {**alone, "key": key})

        return jax.vmap(of_one)(batch)

    def __call__(self, params: Any, data: ClientData, limit: int | None = None) -> Evaluation:
        """Over all of `data`, or its first `limit` examples."""
        clients, key, totals = len(data), jax.random.key(0), None
        for rows, client, real in _chunks(data, self.task.evaluation_batch_size, limit):
            mask = jnp.asarray(real, jnp.result_type(float))
            batch = {**device_rows(data.columns, rows), "mask": mask}
            sums = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self._example_sums(params, batch, key))
            if totals is None:
                totals = jax.tree.map(lambda leaf: np.zeros(clients), sums)
            sums_of_clients = partial(_per_client, client[real], real, clients)
            totals = jax.tree.map(np.add, totals, jax.tree.map(sums_of_clients, sums))
        assert totals is not None, "client data has at least one example"
        overall = means(jax.tree.map(np.sum, totals))
        return Evaluation({name: float(value) for name, value in overall.items()}, means(totals))


def _per_client(client: np.ndarray, real: np.ndarray, clients: int, values: np.ndarray) -> np.ndarray:
    return np.bincount(client, values[real], clients)


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
