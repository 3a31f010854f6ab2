"""Differences of two methods, run by run with the same seed, with their 95 % intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fedtrue.intervals import student_half_width
from fedtrue.reports.labels import Group, identity, run_status, setting_text
from fedtrue.runner.records import Run

MAX_VALUES = 6  # that an error lists


class Difference(NamedTuple):
    """A mean of differences between paired runs, ± the half width of its interval (None for a single pair)."""

    value: float
    interval: float | None
    pairs: int


def paired_difference(
    group: Group, baseline: Group | None, statistic: Callable[[Run], float | None]
) -> Difference | None:
    """Over the runs of the group whose partner in the baseline has the same seed; None without such a pair."""
    if baseline is None or baseline is group:
        return None
    partners = {baseline.pair(run): run for run in baseline.runs}
    both = [(run, partners[group.pair(run)]) for run in group.runs if group.pair(run) in partners]
    values = [
        (statistic(run), statistic(other)) for run, other in both if "diverged" not in map(run_status, (run, other))
    ]
    return mean_difference([None if ours is None or theirs is None else ours - theirs for ours, theirs in values])


def mean_difference(differences: Sequence[float | None]) -> Difference | None:
    """The mean of those that exist, with Student's interval; None if there is none."""
    found = [difference for difference in differences if difference is not None]
    return Difference(fmean(found), student_half_width(found), len(found)) if found else None


def baselines(groups: Sequence[Group], at: Mapping[str, Any], same: Sequence[str]) -> Callable[[Group], Group | None]:
    """group → the group with the settings `at` and, in the keys `same`, its own."""
    candidates = [group for group in groups if all(matches(group.settings.get(key), at[key]) for key in at)]
    if not candidates:
        raise nothing_matches("no row of the table", at, [group.settings for group in groups])

    def baseline_of(group: Group) -> Group | None:
        own = [identity(group.settings.get(key)) for key in same]
        return next((other for other in candidates if [identity(other.settings.get(key)) for key in same] == own), None)

    return baseline_of


def nothing_matches(what: str, wanted: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> ValueError:
    """The error where no row or run has these settings: it names the values that they have."""
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    found = "; ".join(f"{key} is {_listed([table.get(key) for table in settings])}" for key in wanted)
    return ValueError(f"{what} has {said}: {found}")


def _listed(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys("none" if value is None else setting_text(value) for value in values))
    return ", ".join(texts if len(texts) <= MAX_VALUES else [*texts[:MAX_VALUES], "…"])


def matches(value: Any, text: str) -> bool:
    """Whether a setting has the value that a flag gives as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return math.isclose(value, float(text))
        except ValueError:
            return False
    return str(value).lower() == text.lower()
