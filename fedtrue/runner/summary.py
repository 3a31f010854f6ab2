"""A run's records in a few numbers: `summary.json`, and the summary of Python's `Result`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedtrue.runner.records import ADDED_UP, LAST, NOT_METRICS, Line, Run, columns, evaluations
from fedtrue.tasks.metric import Metric, recorded_metric


def summarise(lines: Sequence[Line], status: str, declared: Mapping[str, Metric]) -> dict[str, Any]:
    """Final and best values, means over the last 100 rounds (by which the paper selects), totals.

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
        "best": over(lambda name, r, values: _best(kinds[name], r, values)),
        f"last_{LAST}": over(lambda name, r, values: _mean(values[r >= len(lines) - LAST])),
        "totals": {**totals, "skipped_rounds": skipped},
    }


def as_table(kinds: Mapping[str, Metric]) -> dict[str, dict[str, bool]]:
    """As files have it: {"accuracy": {"higher_is_better": true, "percent": true}}."""
    return {name: asdict(kind) for name, kind in kinds.items()}


def declared_metrics(run: Run) -> dict[str, Metric]:
    """What the run folder says of its metrics: its summary or, before the run has ended, the origin in its config."""
    table = (run.summary or {}).get("metrics") or run.origin.get("metrics") or {}
    return {name: Metric(**kind) for name, kind in table.items()}


def _best(kind: Metric, rounds: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    sign = -1 if kind.higher_is_better else 1
    place = int(np.argmin(np.where(np.isfinite(values), sign * values, math.inf)))
    return {"value": float(values[place]), "round": int(rounds[place])}


def _mean(values: np.ndarray) -> float:
    """Of the finite ones: a skipped round has no loss."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan
