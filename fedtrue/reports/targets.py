"""A value to reach: the threshold of a heat map, the target of a table; when a run reaches it and at what cost."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedtrue.reports.labels import Group, run_status
from fedtrue.reports.measures import Measure, SeedMean, mean_over_seeds, recorded_values
from fedtrue.runner.records import Run


class TargetMissed(NamedTuple):
    """Replaces a mean over seeds if not all of them reached the target."""

    value: None
    deviation: None
    seeds: int
    reached: int


def check_target(target: float | None, measure: Measure, flag: str) -> None:
    """Refuses values that are not finite, and percent where a fraction of 1 is expected."""
    if target is None:
        return
    if not math.isfinite(target):
        raise ValueError(f"{flag} must be a finite number, not {target}")
    if measure.percent and target > 1:
        raise ValueError(
            f"{flag} {target:g}: {measure.key} is a fraction of 1; write {target / 100:g} for {target:g} %"
        )


def reaches_target(value: float | None, measure: Measure, target: float) -> bool:
    """Whether the value is at least as good as the target."""
    return value is not None and bool(value >= target if measure.higher_is_better else value <= target)


def target_text(target: float, measure: Measure) -> str:
    """'20 %' for fractions of 1."""
    return f"{100 * target:.4g} %" if measure.percent else f"{target:.4g}"


def rounds_to(run: Run, measure: Measure, target: float) -> int | None:
    """The number of rounds until the measure first reaches the target; a diverged run never reaches it."""
    recorded = recorded_values(run, measure)
    if recorded is None or run_status(run) == "diverged":
        return None
    return next((int(index) + 1 for index, value in zip(*recorded) if reaches_target(value, measure, target)), None)


def total_over_rounds(run: Run, *names: str, rounds: int | None = None) -> float:
    """The sum of these records over the first `rounds` rounds, or over all."""
    lines = None if rounds is None else np.searchsorted(run.rounds["round"], rounds)
    return float(sum(run.rounds[name][:lines].sum() for name in names if name in run.rounds))


COSTS: dict[str, Callable[[Run, int], float]] = {
    "rounds_to": lambda run, rounds: rounds,
    "bytes_to": lambda run, rounds: total_over_rounds(run, "bytes_up", "bytes_down", rounds=rounds),
    "seconds_to": lambda run, rounds: total_over_rounds(run, "seconds", rounds=rounds),
}


def cost_to(group: Group, measure: Measure, target: float, cost: str) -> SeedMean | TargetMissed:
    """The mean over seeds if all of them reached the target: a mean over the fast seeds only would be too low."""
    rounds_per_run = [(run, rounds_to(run, measure, target)) for run in group.runs]
    costs = [COSTS[cost](run, rounds) for run, rounds in rounds_per_run if rounds is not None]
    mean = mean_over_seeds(costs) if len(costs) == len(rounds_per_run) else None
    return mean or TargetMissed(None, None, len(rounds_per_run), len(costs))


def missed_text(cell: TargetMissed) -> str:
    return f"{cell.reached} of {cell.seeds} reached" if cell.reached else "not reached"
