"""Evaluation by streaming: metric sums over batches, so memory does not grow with the test set.

Metrics are computed per example (vectorised) and summed twice, over all examples and per client: an average hides the
clients for which the model is poor.
"""

import operator
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.batches import device_rows
from fedtrue.data.client_data import ClientData
from fedtrue.tasks.task import Task, check_metrics, check_positive

LOWEST_SHARE = 0.1  # of the clients: the lowest tenth
BATCHES_AHEAD = 8  # prepared and dispatched before the host reads the sums of the first of them


@dataclass(frozen=True)
class Evaluation:
    """Means over all examples, and over the examples of each client."""

    metrics: dict[str, float]
    per_client: dict[str, np.ndarray]  # name → one mean per evaluated client, NaN if no example counts
    clients: Sequence[str]  # their names

    def quantiles(self, name: str) -> dict[str, float]:
        """The distribution of a metric over the clients: quantiles, and the mean of the lowest tenth."""
        values = np.sort(self.per_client[name][np.isfinite(self.per_client[name])])
        if not len(values):
            return {}
        lowest = values[: max(1, int(LOWEST_SHARE * len(values)))].mean()
        named = dict(zip(("p10", "median", "p90"), np.quantile(values, [0.1, 0.5, 0.9]).tolist()))
        return {"lowest_tenth": float(lowest), **named}


def means(sums: Mapping[str, Any]) -> dict[str, Any]:
    """{name: (total, count)} → {name: mean}; NaN if the count is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return {name: np.divide(*(np.asarray(part, np.float64) for part in pair)) for name, pair in sums.items()}


def sums_of_examples(task: Task, params: Any, batch: Any, key: Any, constants: Any) -> Any:
    """The task's metric sums of each example of a batch."""
    shared = {"key": key} if constants is None else {"key": key, "constants": constants}

    def of_one(example: Any) -> Any:
        batch_of_one = jax.tree.map(lambda leaf: leaf[None], example)
        return task.metrics(params, {**batch_of_one, **shared})

    return jax.vmap(of_one)(batch)


class Evaluator:
    """`evaluator(params, data)`, compiled once; with `cells`, the first axis of `params` counts models."""

    def __init__(self, task: Task, cells: bool = False):
        check_metrics(task)  # fails before any training
        self.task, self.cells = task, cells
        sums = partial(sums_of_examples, task)
        self._example_sums = jax.jit(jax.vmap(sums, (0, None, None, None)) if cells else sums)

    def __call__(self, params: Any, data: ClientData, limit: int | None = None) -> Evaluation:
        """Over all of `data`, or its first `limit` examples."""
        return self.of_cells(params, data, limit)[0]

    def of_splits(self, params: Any) -> list[dict[str, Evaluation]]:
        """One entry per model: its evaluations on the task's held-out splits."""
        splits = self.task.held_out_splits
        evaluations = [self.of_cells(params, data, self.task.evaluation_limit) for data in splits.values()]
        models = len(jax.tree.leaves(params)[0]) if self.cells else 1
        return [dict(zip(splits, (per_model[model] for per_model in evaluations))) for model in range(models)]

    def of_cells(self, params: Any, data: ClientData, limit: int | None = None) -> list[Evaluation]:
        """One evaluation per model; the data is read once for all of them."""
        ends, totals = _ends(data, limit), None
        for client, sums in _read_behind(self._dispatched(params, data, ends)):
            if totals is None:
                totals = jax.tree.map(lambda values: np.zeros((len(values), len(ends))), sums)
            for total, values in zip(jax.tree.leaves(totals), jax.tree.leaves(sums)):
                first, of_clients = sums_of_clients(client, values)
                total[:, first : first + of_clients.shape[1]] += of_clients
        assert totals is not None, "client data has at least one example"
        models = range(len(jax.tree.leaves(totals)[0]))
        names = data.client_ids[: len(ends)]
        return [_evaluation(jax.tree.map(operator.itemgetter(model), totals), names) for model in models]

    def _dispatched(self, params: Any, data: ClientData, ends: np.ndarray) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Batch by batch: the client of each example, which rows are real, and the metric sums, still on the device."""
        key = jax.random.key(0)
        for rows, client, real in _chunks(data, ends, self.task.evaluation_batch_size):
            batch = {**device_rows(data.columns, rows), "mask": jnp.asarray(real, jnp.result_type(float))}
            yield client, real, self._example_sums(params, batch, key, self.task.constants)


def _read_behind(batches: Iterator[tuple[np.ndarray, Any, Any]]) -> Iterator[tuple[np.ndarray, Any]]:
    """The clients and metric sums (models, examples) of the real rows, read while the device computes later batches."""
    dispatched: deque[tuple[np.ndarray, Any, Any]] = deque()

    def read() -> tuple[np.ndarray, Any]:
        client, real, sums = dispatched.popleft()
        return client[real], jax.tree.map(lambda values: np.atleast_2d(values)[:, real], sums)

    for batch in batches:
        dispatched.append(batch)
        if len(dispatched) > BATCHES_AHEAD:
            yield read()
    while dispatched:
        yield read()


def _evaluation(totals: Any, clients: Sequence[str]) -> Evaluation:
    """From (total, count) of every metric, one entry per client."""
    overall = means(jax.tree.map(np.sum, totals))
    return Evaluation({name: float(value) for name, value in overall.items()}, means(totals), clients)


def sums_of_clients(client: np.ndarray, values: np.ndarray) -> tuple[int, np.ndarray]:
    """The first entry of the ascending `client`, and (models, examples) summed to (models, clients from that one on).

    The result covers only the clients of the batch: with an array of all clients per batch, the time of an evaluation
    would be proportional to clients × batches.
    """
    first = int(client[0])
    return first, np.stack([np.bincount(client - first, of_model) for of_model in values])


def _ends(data: ClientData, limit: int | None) -> np.ndarray:
    """Where each client's examples end, up to `limit` examples. Every client has one, so `limit` clients are enough."""
    if limit is None:
        return np.cumsum(data.sizes)
    check_positive(evaluation_limit=limit)
    ends = np.cumsum(data.sizes[:limit])
    return np.minimum(ends[: np.searchsorted(ends, limit) + 1], limit)


def _chunks(data: ClientData, ends: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Row numbers, the client of each, and which are real: the last chunk is padded with its first row."""
    examples = int(ends[-1])
    begins = np.concatenate([[0], ends[:-1]])
    for first in range(0, examples, size):
        place = np.arange(first, first + size)
        real = place < examples
        place = np.where(real, place, first)
        client = np.searchsorted(ends, place, side="right")
        yield data.starts[client] + place - begins[client], client, real
