"""Differences of two methods, run by run with the same seed, with their 95 % intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy.special import stdtrit

from fedtrue.reports.labels import Group, identity, run_status
from fedtrue.runner.records import Run

CONFIDENCE = 0.95


class Difference(NamedTuple):
    """A mean of differences between paired runs, ± the half width of its interval (None for a single pair)."""

    value: float
    interval: float | None
    pairs: int


def paired_difference(
    group: Group, baseline: Group | None, statistic: Callable[[Run], float | None]
) -> Difference | None:
    """Over the runs of the group whose partner in the baseline has the same seed; None without such a pair.

    The interval is Student's: t(n − 1) s / √n.
    """
    if baseline is None or baseline is group:
        return None
    partners = {baseline.pair(run): run for run in baseline.runs}
    both = [(run, partners[group.pair(run)]) for run in group.runs if group.pair(run) in partners]
    values = [
        (statistic(run), statistic(other)) for run, other in both if "diverged" not in map(run_status, (run, other))
    ]
    differences = [ours - theirs for ours, theirs in values if ours is not None and theirs is not None]
    if not differences:
        return None
    count = len(differences)
    if count == 1:
        return Difference(differences[0], None, 1)
    half = stdtrit(count - 1, (1 + CONFIDENCE) / 2) * stdev(differences) / math.sqrt(count)
    return Difference(fmean(differences), float(half), count)


def baselines(groups: Sequence[Group], at: Mapping[str, Any], same: Sequence[str]) -> Callable[[Group], Group | None]:
    """group → the group with the settings `at` and, in the keys `same`, its own."""
    candidates = [group for group in groups if all(_matches(group.settings.get(key), at[key]) for key in at)]
    if not candidates:
        wanted = ", ".join(f"{key}={value}" for key, value in at.items())
        raise ValueError(f"no row of the table has {wanted}: see --columns {','.join(at)}")

    def baseline_of(group: Group) -> Group | None:
        own = [identity(group.settings.get(key)) for key in same]
        return next((other for other in candidates if [identity(other.settings.get(key)) for key in same] == own), None)

    return baseline_of


def _matches(value: Any, text: str) -> bool:
    """Whether a setting has the value that a flag gives as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return math.isclose(value, float(text))
        except ValueError:
            return False
    return str(value).lower() == text.lower()
