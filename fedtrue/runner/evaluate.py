"""Evaluation of given weights, outside a run."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from fedtrue.data.client_data import ClientData
from fedtrue.precision import float64
from fedtrue.runner.evaluation import Evaluation, Evaluator
from fedtrue.tasks.task import Task
from fedtrue.types import Params


def evaluate(
    task: Task, params: Params, data: Mapping[str, ClientData] | None = None, limit: int | None = None
) -> dict[str, Evaluation]:
    """The task's metrics at given weights.

    Args:
        task: defines the metrics and the held-out data.
        params: the weights, e.g. `result.params` or `ft.load_run(DIR).params`.
        data: name → data; without it, the task's validation and test data.
        limit: how many examples of each split to evaluate; without it, the task's limit.

    Returns:
        Name → evaluation: `.metrics` has the means over all examples, `.per_client` one mean per client.

    >>> import fedtrue as ft
    >>> task = ft.tasks.quadratic()
    >>> evaluations = ft.evaluate(task, task.minimiser, {"train": task.train})
    >>> sorted(evaluations["train"].metrics)
    ['loss']
    """
    held_out = {"validation": task.validation, "test": task.test}
    splits = data if data is not None else {name: split for name, split in held_out.items() if split is not None}
    if not splits:
        raise ValueError(f"task {task.name!r} has no held-out data: give some, e.g. data={{'train': task.train}}")
    with float64(task.float64):
        evaluator, weights = Evaluator(task), jax.tree.map(jnp.asarray, params)
        examples = limit if limit is not None else task.evaluation_limit
        return {name: evaluator(weights, split, examples) for name, split in splits.items()}
