"""A run's records in a few numbers: `summary.json`, and the summary of Python's `Result`.

Of every metric there are three statistics, and each has one name wherever it is shown:

    final       its value after the last round
    mean_last   the mean of its evaluations in the last 100 rounds, by which the paper compares
    best        its best value, and the round of it
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
    """The mean of a run's last evaluations; on train data every round is one."""

    value: float
    evaluations: int  # so many were averaged
    rounds: int  # in the last so many rounds: 100, or all rounds of a shorter run


class Best(NamedTuple):
    value: float
    round: int


def summarise(lines: Sequence[Line], status: str, declared: Mapping[str, Metric]) -> dict[str, Any]:
    """The three statistics of every metric, by split, and totals.

    `declared`: how the task compares its metrics; `metrics` of the summary has it for every metric that was recorded.
    """
    rounds = columns(lines)
    trained = {name: (rounds["round"], values) for name, values in rounds.items() if name not in NOT_METRICS}
    splits = {"train": trained, **evaluations(lines)} if lines else {}
    kinds = {name: recorded_metric(name, declared) for metrics in splits.values() for name in metrics}
    over = lambda reduce: {
        split: {name: reduce(name, *series) for name, series in metrics.items()} for split, metrics in splits.items()
    }
    totals = {name: rounds[name].sum().item() for name in ADDED_UP if name in rounds}
    skipped = int((rounds["clients"] == 0).sum()) if lines else 0
    return {
        "status": status,
        "rounds": len(lines),
        "metrics": as_table(kinds),
        "final": over(lambda name, r, values: float(values[-1])),
        "mean_last": over(lambda name, r, values: mean_last(r, values, len(lines))._asdict()),
        "best": over(lambda name, r, values: best(r, values, kinds[name].higher_is_better)._asdict()),
        "totals": {**totals, "skipped_rounds": skipped},
    }


def as_table(kinds: Mapping[str, Metric]) -> dict[str, dict[str, bool]]:
    """As files have it: {"accuracy": {"higher_is_better": true, "percent": true}}."""
    return {name: asdict(kind) for name, kind in kinds.items()}


def declared_metrics(run: Run) -> dict[str, Metric]:
    """What the run folder says of its metrics: its summary or, before the run has ended, the origin in its config."""
    table = (run.summary or {}).get("metrics") or run.origin.get("metrics") or {}
    return {name: Metric(**kind) for name, kind in table.items()}


def read_outcome(path: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, else None; one without `mean_last`, as it once was, is made anew."""
    summary = read_summary(path)
    if summary is None or "mean_last" in summary:
        return summary
    return summarise(read_lines(path / METRICS), summary["status"], {})


def flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """{"final": {"test": {"accuracy": 0.5}}} → {"final.test.accuracy": 0.5}: a table's columns have these names."""
    return {
        f"{statistic}.{split}.{name}": value
        for statistic in STATISTICS
        for split, metrics in summary.get(statistic, {}).items()
        for name, value in metrics.items()
    }


def mean_last(rounds: np.ndarray, values: np.ndarray, done: int) -> LastMean:
    """The mean of the finite values in the last 100 of the `done` rounds: a skipped round has no loss."""
    late = values[(rounds >= done - LAST) & np.isfinite(values)]
    return LastMean(float(late.mean()) if len(late) else math.nan, len(late), min(done, LAST))


def best(rounds: np.ndarray, values: np.ndarray, higher_is_better: bool) -> Best:
    """The highest or the lowest finite value; the first of equals."""
    sign = -1 if higher_is_better else 1
    place = int(np.argmin(np.where(np.isfinite(values), sign * values, math.inf)))
    return Best(float(values[place]), int(rounds[place]))
