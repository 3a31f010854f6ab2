"""Numbers of a run by name: "test.accuracy", "validation.loss", "train.loss", "pseudo_gradient_norm"."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from fedtrue.names import look_up
from fedtrue.report.labels import Group, status
from fedtrue.runner.records import LAST, NOT_METRICS, Run, higher_is_better, is_share

ALSO_CURVES = ("pseudo_gradient_norm", "dropped", "idle_steps")  # of a round, not of a split, yet worth a look
SHOWN_AT_FIRST = 12  # curves of a figure: more cannot be told apart; the page draws others on request


class Mean(NamedTuple):
    """Over seeds; the deviation is the sample's (n − 1), None for one seed."""

    value: float
    deviation: float | None
    seeds: int


def measure_names(runs: Iterable[Run]) -> list[str]:
    """Everything that can be drawn: test first, shares before losses."""
    found: dict[str, None] = {}
    for run in runs:
        found.update(dict.fromkeys(f"{split}.{name}" for split, named in run.evaluations.items() for name in named))
        found.update(dict.fromkeys(f"train.{name}" for name in run.rounds if name not in NOT_METRICS))
        found.update(dict.fromkeys(name for name in ALSO_CURVES if name in run.rounds and _ever(run.rounds[name])))
    splits = ("test", "validation", "train")
    place = lambda name: (
        splits.index(name.split(".")[0]) if name.split(".")[0] in splits else len(splits),
        not is_share(name),
        "loss" not in name,
    )
    return sorted(found, key=place)


def _ever(values: np.ndarray) -> bool:
    """Whether there is anything to see: a run in which no client was ever dropped needs no curve of it."""
    return bool(np.any(np.nan_to_num(values) != 0))


def chosen_measure(runs: Sequence[Run], wanted: str | None = None) -> str:
    """The one asked for, or the first there is; a name nobody has is refused with the nearest."""
    names = measure_names(runs)
    if not names:
        raise ValueError("no round has been recorded yet in any of these runs: wait for the first, then ask again")
    return look_up("metric", dict(zip(names, names)), wanted) if wanted else names[0]


def measure_title(measure: str) -> str:
    """'test.accuracy' → 'test accuracy'."""
    return measure.replace(".", " ").replace("_", " ")


def last_rounds_title(measure: str) -> str:
    """What `last_rounds` is called over a column: 'test accuracy, last 100 rounds (%)'."""
    return f"{measure_title(measure)}, last {LAST} rounds{' (%)' if is_share(measure) else ''}"


def series(run: Run, measure: str) -> tuple[np.ndarray, np.ndarray] | None:
    """(round index, value) of a measure, or None where the run does not have it."""
    split, _, name = measure.rpartition(".")
    if split in ("", "train"):
        return (run.rounds["round"], run.rounds[name]) if name in run.rounds else None
    return run.evaluations.get(split, {}).get(name)


def last_rounds(run: Run, measure: str) -> float | None:
    """The mean over the last 100 rounds, by which the paper compares; None where nothing finite was recorded."""
    found = series(run, measure)
    if found is None or not len(run.rounds["round"]):
        return None
    rounds, values = found
    late = values[(rounds > run.rounds["round"][-1] - LAST) & np.isfinite(values)]
    return float(late.mean()) if len(late) else None


def best(run: Run, measure: str) -> float | None:
    found = series(run, measure)
    finite = found[1][np.isfinite(found[1])] if found else np.zeros(0)
    if not len(finite):
        return None
    return float(finite.max() if higher_is_better(measure) else finite.min())


def mean(values: Sequence[float | None]) -> Mean | None:
    """Over the seeds that have a value."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Mean(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def group_value(group: Group, measure: str) -> Mean | None:
    """Last-100-round means, averaged over the seeds that did not diverge: what a diverged run reached says nothing."""
    return mean([last_rounds(run, measure) for run in group.runs if status(run) != "diverged"])


def best_first(groups: Sequence[Group], measure: str) -> list[int]:
    """Places of the groups, the best value first, those without one last."""
    sign = -1 if higher_is_better(measure) else 1
    values = [group_value(group, measure) for group in groups]
    order = [(value is None, sign * value.value if value else 0.0, place) for place, value in enumerate(values)]
    return [place for _, _, place in sorted(order)]
