"""The summary of a run: `summary.json`, and `Result.summary` in Python.

Every metric has three statistics, with the same names everywhere:

    final       its value after the last round
    mean_last   the mean of its evaluations in the last 100 rounds, which the paper compares
    best        its best value, and its round
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtrue.runner.exploded import find_exploded
from fedtrue.runner.records import (
    ADDED_UP,
    LAST,
    METRICS,
    NOT_METRICS,
    Line,
    Run,
    columns,
    evaluations,
    read_lines,
    read_summary,
)
from fedtrue.tasks.metric import Metric, recorded_metric

STATISTICS = ("final", "mean_last", "best")


class LastMean(NamedTuple):
    """The mean of a run's last evaluations; on training data every round counts as one."""

    value: float
    evaluations: int  # how many were averaged
    rounds: int  # in how many last rounds: 100, or all rounds of a shorter run


class Best(NamedTuple):
    value: float
    round: int


def summarise(lines: Sequence[Line], status: str, declared: Mapping[str, Metric]) -> dict[str, Any]:
    """The three statistics of every metric, per split, totals, and exploded rounds if there are any.

    `declared`: the task's declarations of its metrics; the summary's `metrics` has one entry per recorded metric.
    """
    rounds = columns(lines)
    trained = {name: (rounds["round"], values) for name, values in rounds.items() if name not in NOT_METRICS}
    splits = {"train": trained, **evaluations(lines)} if lines else {}
    kinds = {name: recorded_metric(name, declared) for metrics in splits.values() for name in metrics}
    per_metric = lambda reduce: {
        split: {name: reduce(name, *series) for name, series in metrics.items()} for split, metrics in splits.items()
    }
    totals = {name: rounds[name].sum().item() for name in ADDED_UP if name in rounds}
    skipped = int((rounds["clients"] == 0).sum()) if lines else 0
    exploded = find_exploded(rounds)
    return {
        "status": status,
        "rounds": len(lines),
        "metrics": as_table(kinds),
        "final": per_metric(lambda name, r, values: float(values[-1])),
        "mean_last": per_metric(lambda name, r, values: mean_last(r, values, len(lines))._asdict()),
        "best": per_metric(lambda name, r, values: best(r, values, kinds[name].higher_is_better)._asdict()),
        "totals": {**totals, "skipped_rounds": skipped},
        **({} if exploded is None else {"exploded": exploded._asdict()}),
    }


def as_table(kinds: Mapping[str, Metric]) -> dict[str, dict[str, bool]]:
    """As written to files: {"accuracy": {"higher_is_better": true, "percent": true}}."""
    return {name: asdict(kind) for name, kind in kinds.items()}


def declared_metrics(run: Run) -> dict[str, Metric]:
    """The run's declared metrics: from its summary or, before the run has ended, from the origin in its config."""
    table = (run.summary or {}).get("metrics") or run.origin.get("metrics") or {}
    return {name: Metric(**kind) for name, kind in table.items()}


def read_outcome(path: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, else None; one of an older version, without `mean_last`, is recomputed."""
    summary = read_summary(path)
    if summary is None or "mean_last" in summary:
        return summary
    return summarise(read_lines(path / METRICS), summary["status"], {})


def flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """{"final": {"test": {"accuracy": 0.5}}} → {"final.test.accuracy": 0.5}: the names of table columns."""
    return {
        f"{statistic}.{split}.{name}": value
        for statistic in STATISTICS
        for split, metrics in summary.get(statistic, {}).items()
        for name, value in metrics.items()
    }


def mean_last(rounds: np.ndarray, values: np.ndarray, done: int) -> LastMean:
    """The mean of the finite values in the last 100 of the `done` rounds: a skipped round has no loss."""
    last_values = values[(rounds >= done - LAST) & np.isfinite(values)]
    return LastMean(float(last_values.mean()) if len(last_values) else math.nan, len(last_values), min(done, LAST))


def best(rounds: np.ndarray, values: np.ndarray, higher_is_better: bool) -> Best:
    """The highest or lowest finite value; the first one if several are equal."""
    sign = -1 if higher_is_better else 1
    place = int(np.argmin(np.where(np.isfinite(values), sign * values, math.inf)))
    return Best(float(values[place]), int(rounds[place]))
