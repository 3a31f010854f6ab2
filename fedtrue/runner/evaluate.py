"""Evaluation of given weights, outside a run."""

from collections.abc import Mapping
from functools import lru_cache

import jax
import jax.numpy as jnp

from fedtrue.data.client_data import ClientData
from fedtrue.engine.simulation import SimulationState
from fedtrue.precision import float64
from fedtrue.runner.evaluation import Evaluation, Evaluator
from fedtrue.runner.journal import Result
from fedtrue.tasks.task import Task
from fedtrue.types import Params


def evaluate(
    task: Task,
    params: Params | SimulationState | Result,
    data: Mapping[str, ClientData] | None = None,
    limit: int | None = None,
) -> dict[str, Evaluation]:
    """The task's metrics at given weights.

    Args:
        task: defines the metrics and the held-out data.
        params: the weights, or what has them as `.params`: a state of `ft.rounds`, a result, `ft.load_run(DIR)`.
        data: name → data; without it, the task's validation and test data, and its clients that never train.
        limit: how many examples of each split to evaluate; without it, the task's limit.

    Returns:
        Name → evaluation: `.metrics` has the means over all examples, `.per_client` one mean per client.

    >>> import fedtrue as ft
    >>> task = ft.tasks.quadratic()
    >>> evaluations = ft.evaluate(task, task.minimiser, {"train": task.train})
    >>> sorted(evaluations["train"].metrics)
    ['loss']
    """
    splits = data if data is not None else task.held_out_splits
    if not splits:
        raise ValueError(f"task {task.name!r} has no held-out data: give some, e.g. data={{'train': task.train}}")
    with float64(task.float64):
        evaluator, weights = _evaluator(task), jax.tree.map(jnp.asarray, getattr(params, "params", params))
        examples = limit if limit is not None else task.evaluation_limit
        return {name: evaluator(weights, split, examples) for name, split in splits.items()}


def _evaluator(task: Task) -> Evaluator:
    """Compiled once per task, so that a loop may evaluate after every round."""
    return _evaluator_of(_ById(task))


class _ById:
    """A task as a key of a cache: equal to itself only."""

    def __init__(self, task: Task):
        self.task = task

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.task is self.task

    def __hash__(self) -> int:
        return id(self.task)


@lru_cache(maxsize=4)
def _evaluator_of(key: _ById) -> Evaluator:
    return Evaluator(key.task)
