"""A value to reach: a heat map's threshold, a table's target; when a run first reaches it, and what that cost."""

import math
from collections.abc import Callable
from typing import NamedTuple

from fedtrue.report.labels import Group, status
from fedtrue.report.measures import Mean, Measure, mean, series
from fedtrue.runner.records import Run


class Missed(NamedTuple):
    """In place of a mean over seeds, where not all of them reached the target."""

    value: None
    deviation: None
    seeds: int
    reached: int


def check_target(target: float | None, measure: Measure, flag: str) -> None:
    """Refuses what nothing could be compared with, and percent where a part of 1 is meant."""
    if target is None:
        return
    if not math.isfinite(target):
        raise ValueError(f"{flag} must be a finite number, not {target}")
    if measure.percent and target > 1:
        raise ValueError(f"{flag} {target:g}: {measure.key} is a part of 1; {target / 100:g} means {target:g} %")


def reaches(value: float | None, measure: Measure, target: float) -> bool:
    """At least as good as the target: above it for accuracies, below it for losses."""
    return value is not None and bool(value >= target if measure.higher_is_better else value <= target)


def target_text(target: float, measure: Measure) -> str:
    """'20 %' of parts of 1."""
    return f"{100 * target:.4g} %" if measure.percent else f"{target:.4g}"


def rounds_to(run: Run, measure: Measure, target: float) -> int | None:
    """The rounds done when the measure first reaches the target; a run that diverged counts as one that never does."""
    found = series(run, measure)
    if found is None or status(run) == "diverged":
        return None
    return next((int(place) + 1 for place, value in zip(*found) if reaches(value, measure, target)), None)


def spent(run: Run, *names: str, rounds: int | None = None) -> float:
    """The sum of these records over the first so many rounds, or over all."""
    return float(sum(run.rounds[name][:rounds].sum() for name in names if name in run.rounds))


COSTS: dict[str, Callable[[Run, int], float]] = {
    "rounds_to": lambda run, rounds: rounds,
    "bytes_to": lambda run, rounds: spent(run, "bytes_up", "bytes_down", rounds=rounds),
    "seconds_to": lambda run, rounds: spent(run, "seconds", rounds=rounds),
}


def cost_to(group: Group, measure: Measure, target: float, cost: str) -> Mean | Missed:
    """The mean over seeds if all of them reached the target: a mean over the quick ones would flatter."""
    ends = [(run, rounds_to(run, measure, target)) for run in group.runs]
    costs = [COSTS[cost](run, rounds) for run, rounds in ends if rounds is not None]
    everyone = mean(costs) if len(costs) == len(ends) else None
    return everyone or Missed(None, None, len(ends), len(costs))


def missed_text(cell: Missed) -> str:
    return f"{cell.reached} of {cell.seeds} reached" if cell.reached else "not reached"
