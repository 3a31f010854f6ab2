"""Curves: a measure against rounds, bytes communicated or seconds; means over seeds; fewer points for the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedtrue.reports.labels import Group
from fedtrue.reports.measures import Measure, recorded_values
from fedtrue.runner.records import Run

AXES = {"rounds": "rounds", "bytes": "bytes communicated", "seconds": "seconds of training"}
MAX_POINTS_PER_CURVE = 1000  # more than a screen has columns
MAX_POINTS_PER_PAGE = 200_000  # a browser draws these without a noticeable delay
MIN_POINTS_PER_CURVE = 200


@dataclass(frozen=True)
class Curve:
    """One value per point; a point is reached after `rounds` rounds, `bytes` sent up and down, and `seconds`."""

    rounds: np.ndarray
    bytes: np.ndarray
    seconds: np.ndarray
    value: np.ndarray
    low: np.ndarray | None = None  # the lowest and the highest seed
    high: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rounds)

    def at(self, indices: np.ndarray) -> "Curve":
        """The curve with only these points."""
        pick = lambda array: None if array is None else array[indices]
        return Curve(
            self.rounds[indices],
            self.bytes[indices],
            self.seconds[indices],
            self.value[indices],
            pick(self.low),
            pick(self.high),
        )


def run_curve(run: Run, measure: Measure) -> Curve | None:
    """The curve of a run; a value recorded in round r is at r + 1, the number of rounds completed by then."""
    recorded = recorded_values(run, measure)
    if recorded is None or not len(recorded[0]):
        return None
    rounds, values = recorded
    indices = np.searchsorted(run.rounds["round"], rounds)
    zeros = np.zeros(len(run.rounds["round"]))
    total = lambda *names: np.cumsum(sum(np.nan_to_num(run.rounds.get(name, zeros)) for name in names))
    return Curve(rounds + 1, total("bytes_up", "bytes_down")[indices], total("seconds")[indices], values)


def group_curve(group: Group, measure: Measure) -> Curve | None:
    """The curve of a single run, or the mean over the seeds of a group."""
    curves = [curve for run in group.runs if (curve := run_curve(run, measure)) is not None]
    return curves[0] if len(curves) == 1 else mean_curve(curves) if curves else None


def mean_curve(curves: Sequence[Curve]) -> Curve | None:
    """Mean, minimum and maximum over seeds, at the rounds that all of them have."""
    common = curves[0].rounds
    for other in curves[1:]:
        common = np.intersect1d(common, other.rounds)
    if not len(common):
        return None
    aligned = [curve.at(np.searchsorted(curve.rounds, common)) for curve in curves]
    values = np.stack([curve.value for curve in aligned])
    return Curve(
        common,
        np.mean([curve.bytes for curve in aligned], axis=0),
        np.mean([curve.seconds for curve in aligned], axis=0),
        values.mean(axis=0),
        values.min(axis=0),
        values.max(axis=0),
    )


def thin_curve(curve: Curve, limit: int) -> Curve:
    """At most `limit` evenly spaced points, including the first and the last."""
    if len(curve) <= limit:
        return curve
    return curve.at(np.unique(np.linspace(0, len(curve) - 1, limit).round().astype(int)))


def points_per_curve(curves: int) -> int:
    """How many points each of so many curves may have, so that the page opens quickly."""
    return int(np.clip(MAX_POINTS_PER_PAGE // max(curves, 1), MIN_POINTS_PER_CURVE, MAX_POINTS_PER_CURVE))
