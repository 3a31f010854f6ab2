"""Curves: a measure against rounds, bytes communicated, or seconds; means over seeds; thinned for the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedtrue.report.labels import Group
from fedtrue.report.measures import Measure, series
from fedtrue.runner.records import Run

AXES = {"rounds": "rounds", "bytes": "bytes communicated", "seconds": "seconds of training"}
POINTS = 1000  # of a curve on the page: more than a screen has columns
ALL_POINTS = 200_000  # of all curves together: what a browser still draws without a pause
FEWEST = 200


@dataclass(frozen=True)
class Curve:
    """One value a point; the point is after `rounds` rounds, `bytes` up and down, `seconds`."""

    rounds: np.ndarray
    bytes: np.ndarray
    seconds: np.ndarray
    value: np.ndarray
    low: np.ndarray | None = None  # the lowest and the highest seed
    high: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rounds)

    def at(self, places: np.ndarray) -> "Curve":
        pick = lambda array: None if array is None else array[places]
        return Curve(
            self.rounds[places],
            self.bytes[places],
            self.seconds[places],
            self.value[places],
            pick(self.low),
            pick(self.high),
        )


def curve(run: Run, measure: Measure) -> Curve | None:
    """The curve of a run; a value recorded in round r stands at r + 1, for so many rounds are then done."""
    found = series(run, measure)
    if found is None or not len(found[0]):
        return None
    rounds, values = found
    place = np.searchsorted(run.rounds["round"], rounds)
    total = lambda *names: np.cumsum(sum(np.nan_to_num(run.rounds.get(name, 0.0 * rounds_of(run))) for name in names))
    return Curve(rounds + 1, total("bytes_up", "bytes_down")[place], total("seconds")[place], values)


def rounds_of(run: Run) -> np.ndarray:
    return np.asarray(run.rounds["round"], float)


def group_curve(group: Group, measure: Measure) -> Curve | None:
    """A run's own curve, or the mean over a group's seeds."""
    own = [found for run in group.runs if (found := curve(run, measure)) is not None]
    return own[0] if len(own) == 1 else mean_curve(own) if own else None


def mean_curve(curves: Sequence[Curve]) -> Curve | None:
    """Mean, lowest and highest over seeds, at the rounds that all of them have."""
    common = curves[0].rounds
    for other in curves[1:]:
        common = np.intersect1d(common, other.rounds)
    if not len(common):
        return None
    aligned = [each.at(np.searchsorted(each.rounds, common)) for each in curves]
    values = np.stack([each.value for each in aligned])
    return Curve(
        common,
        np.mean([each.bytes for each in aligned], axis=0),
        np.mean([each.seconds for each in aligned], axis=0),
        values.mean(axis=0),
        values.min(axis=0),
        values.max(axis=0),
    )


def thinned(curve: Curve, limit: int) -> Curve:
    """At most `limit` points, evenly chosen, the first and the last among them."""
    if len(curve) <= limit:
        return curve
    return curve.at(np.unique(np.linspace(0, len(curve) - 1, limit).round().astype(int)))


def points_each(curves: int) -> int:
    """How many points a curve may have, so that all of them together still open well."""
    return int(np.clip(ALL_POINTS // max(curves, 1), FEWEST, POINTS))
