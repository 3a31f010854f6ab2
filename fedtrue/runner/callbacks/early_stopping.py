"""Stops a run when a metric no longer improves."""

import math

from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.names import look_up
from fedtrue.runner.callbacks.interface import Round, Start, StopRun
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.tasks.metric import recorded_metric
from fedtrue.tasks.task import Task, metric_names

PATIENCE = 5


class EarlyStopping:
    """Stop when a metric has not improved by more than `min_delta` in `patience` evaluations in a row.

    Which direction is better is what the task declares. A resumed run counts on from its records; a run that was
    stopped in this way and is resumed starts a new count.

    Args:
        metric: "SPLIT.NAME", e.g. "test.accuracy", "validation.loss" or "train.loss"; a metric of the training batches
            is looked at after every round, in dispatches of one round.
        patience: evaluations without an improvement.
        min_delta: an improvement is larger than this.

    >>> import fedtrue as ft
    >>> task, method = ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.01))
    >>> stopping = ft.callbacks.EarlyStopping("train.loss", patience=3, min_delta=1e3)
    >>> ft.train(task, method, rounds=100, callbacks=[stopping]).summary["stopped"]
    'train.loss has not improved on 314.5 for 3 rounds'
    """

    def __init__(self, metric: str, patience: int = PATIENCE, min_delta: float = 0.0):
        self.metric = metric
        self.split, _, self.name = metric.partition(".")
        if not self.name:
            raise ValueError(f"EarlyStopping takes SPLIT.NAME, e.g. test.{metric}, not {metric!r}")
        self.patience = check_int("patience", patience, low=1)
        self.min_delta = check_float("min_delta", min_delta)
        self.rounds_per_dispatch = 1 if self.split == "train" else None

    def check(self, task: Task, schedule: HostSchedule) -> None:
        """Refuses a metric that this run does not record."""
        look_up("split", {"train": task.train, **task.held_out_splits}, self.split)
        names = metric_names(task).trained if self.split == "train" else metric_names(task).evaluated
        look_up(f"{self.split} metric", dict.fromkeys(names), self.name)
        if self.split != "train" and schedule.evaluate_every is None:
            raise ValueError(f"early stopping by {self.metric} needs evaluations during the run: give evaluate_every")

    def on_start(self, start: Start) -> None:
        """Counts the past rounds."""
        higher = recorded_metric(self.name, start.task.metric_kinds).higher_is_better
        self._sign = 1 if higher else -1
        self._best, self._waited = -math.inf, 0
        for info in start.past:
            self.on_round(info)

    def on_round(self, info: Round) -> StopRun | None:
        metrics = info.metrics if self.split == "train" else info.evaluation.get(self.split, {})
        if self.name not in metrics:
            return None
        score = self._sign * metrics[self.name]
        if score > self._best + self.min_delta:  # not true for NaN
            self._best, self._waited = score, 0
            return None
        self._waited += 1
        if self._waited < self.patience:
            return None
        self._waited = 0  # if the run is resumed
        unit = "round" if self.split == "train" else "evaluation"
        count = f"1 {unit}" if self.patience == 1 else f"{self.patience} {unit}s"
        return StopRun(f"{self.metric} has not improved on {self._sign * self._best:.6g} for {count}")
