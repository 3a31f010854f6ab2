"""Evaluation of given weights, outside a run."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.data.client_data import ClientData
from fedtrue.engine.arguments import check_task, described
from fedtrue.engine.simulation import SimulationState
from fedtrue.models.named_leaves import named_leaves
from fedtrue.precision import float64
from fedtrue.runner.evaluation import Evaluation, Evaluator
from fedtrue.runner.journal import Result
from fedtrue.tasks.task import Task
from fedtrue.types import Params

Shapes = dict[str, tuple[int, ...]]  # by the name of a weight


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
    check_task(task)
    splits = data if data is not None else task.held_out_splits
    if not splits:
        raise ValueError(f"task {task.name!r} has no held-out data: give some, e.g. data={{'train': task.train}}")
    with float64(task.float64):
        weights = getattr(params, "params", params)
        _check_weights(task, weights)
        evaluator, weights = _evaluator(task), jax.tree.map(jnp.asarray, weights)
        examples = limit if limit is not None else task.evaluation_limit
        return {name: evaluator(weights, split, examples) for name, split in splits.items()}


def _check_weights(task: Task, weights: Any) -> None:
    """Refuses weights whose names or shapes are not those of the task's own."""
    if weights is None or isinstance(weights, str | Path):
        example = f"ft.load_run({str(weights)!r})" if weights else "a result of ft.train(…)"
        raise ValueError(f"params is {described(weights)}: give weights, e.g. {example}")
    (own, complete), given = _own_shapes(_ById(task)), _shapes(weights)
    own = complete if given.keys() == complete.keys() else own  # a task that trains a part takes the whole model too
    for name, shape in given.items():
        if name not in own:
            raise ValueError(f"params has {name!r}, which task {task.name!r} lacks: give those of {', '.join(own)}")
        if shape != own[name]:
            raise ValueError(f"params: {name!r} has shape {shape}, the task's has {own[name]}: give the task's weights")
    if missing := [name for name in own if name not in given]:
        raise ValueError(f"params has no {missing[0]!r}: give all weights of task {task.name!r}")


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
def _own_shapes(key: _ById) -> tuple[Shapes, Shapes]:
    """Those of the task's weights, and of all weights of its model."""
    complete = key.task.model_weights or (lambda trained: trained)
    own = jax.eval_shape(key.task.init, jax.random.key(0))
    return _shapes(own), _shapes(jax.eval_shape(complete, own))


def _shapes(weights: Params) -> Shapes:
    return {name: np.shape(leaf) for name, leaf in named_leaves(weights).items()}


@lru_cache(maxsize=4)
def _evaluator_of(key: _ById) -> Evaluator:
    return Evaluator(key.task)
