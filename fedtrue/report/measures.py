"""Numbers of a run by name: "test.accuracy", "validation.loss", "train.loss", "pseudo_gradient_norm"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from fedtrue.names import look_up
from fedtrue.report.labels import Group, status
from fedtrue.runner import summary
from fedtrue.runner.records import LAST, NOT_METRICS, Run
from fedtrue.runner.summary import LastMean, declared_metrics
from fedtrue.tasks.metric import Metric, recorded_metric

ALSO_CURVES = ("pseudo_gradient_norm", "dropped", "idle_steps")  # of a round, not of a split, yet worth a look
HELD_OUT = ("test.", "validation.")  # evaluated now and then; everything else is recorded in every round
SHOWN_AT_FIRST = 12  # curves of a figure: more cannot be told apart; the page draws others on request


class Mean(NamedTuple):
    """Over seeds; the deviation is the sample's (n − 1), None for one seed."""

    value: float
    deviation: float | None
    seeds: int


class MeanOfLast(NamedTuple):
    """A mean over seeds of means of their last evaluations, and how many those were; None where seeds differ."""

    value: float
    deviation: float | None
    seeds: int
    evaluations: int | None
    rounds: int | None


@dataclass(frozen=True)
class Measure:
    """A number that runs record, and how it is compared and shown."""

    key: str
    higher_is_better: bool = False
    percent: bool = False  # a share of 1 in files, percent for people

    @property
    def title(self) -> str:
        """'test.accuracy' → 'test accuracy'."""
        return self.key.replace(".", " ").replace("_", " ")

    @property
    def unit(self) -> str:
        return " (%)" if self.percent else ""


def measures(runs: Sequence[Run]) -> list[Measure]:
    """Everything that can be drawn."""
    keys: dict[str, None] = {}
    for run in runs:
        keys.update(dict.fromkeys(f"{split}.{name}" for split, named in run.evaluations.items() for name in named))
        keys.update(dict.fromkeys(f"train.{name}" for name in run.rounds if name not in NOT_METRICS))
        keys.update(dict.fromkeys(name for name in ALSO_CURVES if name in run.rounds and _ever(run.rounds[name])))
    declared = declared_by_all(runs)
    return in_order([_measure(key, declared) for key in keys])


def in_order(found: Sequence[Measure]) -> list[Measure]:
    """Test first, what is better when higher before losses: runs are compared by the first."""
    splits = ("test", "validation", "train")
    split_of = lambda measure: measure.key.split(".")[0]
    place = lambda measure: (
        splits.index(split_of(measure)) if split_of(measure) in splits else len(splits),
        not measure.higher_is_better,
        "loss" not in measure.key,
    )
    return sorted(found, key=place)


def _measure(key: str, declared: dict[str, Metric]) -> Measure:
    kind = recorded_metric(key.rpartition(".")[2], declared)
    return Measure(key, kind.higher_is_better, kind.percent)


def declared_by_all(runs: Sequence[Run]) -> dict[str, Metric]:
    """What the runs say of their metrics; those that contradict each other cannot be compared."""
    found: dict[str, Metric] = {}
    for run in runs:
        for name, kind in declared_metrics(run).items():
            if found.setdefault(name, kind) != kind:
                raise ValueError(
                    f"{run.path} and another of these runs declare metric {name!r} differently: report them separately"
                )
    return found


def _ever(values: np.ndarray) -> bool:
    """Whether there is anything to see: a run in which no client was ever dropped needs no curve of it."""
    return bool(np.any(np.nan_to_num(values) != 0))


def chosen_measure(runs: Sequence[Run], wanted: str | None = None) -> Measure:
    """The one asked for, or the first there is; a name nobody has is refused with the nearest."""
    found = measures(runs)
    if not found:
        raise ValueError("no round has been recorded yet in any of these runs: wait for the first, then ask again")
    return look_up("metric", {measure.key: measure for measure in found}, wanted) if wanted else found[0]


def series(run: Run, measure: Measure) -> tuple[np.ndarray, np.ndarray] | None:
    """(round index, value) of a measure, or None where the run does not have it."""
    split, _, name = measure.key.rpartition(".")
    if split in ("", "train"):
        return (run.rounds["round"], run.rounds[name]) if name in run.rounds else None
    return run.evaluations.get(split, {}).get(name)


def final(run: Run, measure: Measure) -> float | None:
    found = series(run, measure)
    return float(found[1][-1]) if found and len(found[1]) and math.isfinite(found[1][-1]) else None


def mean_last(run: Run, measure: Measure) -> LastMean | None:
    """The mean over the last 100 rounds, by which the paper compares; None where nothing finite was recorded."""
    found = series(run, measure)
    if found is None:
        return None
    value = summary.mean_last(*found, done=len(run.rounds["round"]))
    return value if value.evaluations else None


def best(run: Run, measure: Measure) -> float | None:
    found = series(run, measure)
    if found is None or not np.isfinite(found[1]).any():
        return None
    return summary.best(*found, measure.higher_is_better).value


def mean(values: Sequence[float | None]) -> Mean | None:
    """Over the seeds that have a value."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Mean(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def group_value(group: Group, measure: Measure) -> MeanOfLast | None:
    """`mean_last` of the seeds that did not diverge, averaged: what a diverged run reached says nothing."""
    found = last_means(group.runs, measure)
    over_seeds = mean([each.value for each in found])
    only = lambda counts: counts.pop() if len(counts) == 1 else None
    return over_seeds and MeanOfLast(
        *over_seeds, only({each.evaluations for each in found}), only({each.rounds for each in found})
    )


def last_means(runs: Sequence[Run], measure: Measure) -> list[LastMean]:
    """Of the runs that count: those that have a value and did not diverge."""
    found = (mean_last(run, measure) for run in runs if status(run) != "diverged")
    return [each for each in found if each is not None]


def mean_last_title(measure: Measure, found: Sequence[LastMean]) -> str:
    """'test accuracy, mean of the 10 evaluations in the last 100 rounds'; of these runs it says what holds for all."""
    counts, spans = {each.evaluations for each in found}, {each.rounds for each in found} or {LAST}
    if spans == {LAST}:
        rounds = f"the last {LAST} rounds"
    else:
        rounds = _all_rounds(spans.pop()) if len(spans) == 1 else f"the last {LAST} rounds, or all of a shorter run"
    if not measure.key.startswith(HELD_OUT):
        return f"{measure.title}, mean over {rounds}"
    if counts == {1}:
        return f"{measure.title}, the one evaluation in {rounds}"
    number = f"{counts.pop():,} " if len(counts) == 1 else ""
    return f"{measure.title}, mean of the {number}evaluations in {rounds}"


def _all_rounds(count: int) -> str:
    return "the only round" if count == 1 else f"all {count} rounds"


def best_first(groups: Sequence[Group], measure: Measure) -> list[int]:
    """Places of the groups, the best `mean_last` first; then those with a seed that diverged, those without a value."""
    sign = -1 if measure.higher_is_better else 1
    values = [group_value(group, measure) for group in groups]
    order = [
        (value is None, "diverged" in group.status, sign * value.value if value else 0.0, place)
        for place, (group, value) in enumerate(zip(groups, values))
    ]
    return [place for *_, place in sorted(order)]


def best_group(groups: Sequence[Group], measure: Measure) -> int | None:
    """The place of the best; None where no group has a value."""
    place = best_first(groups, measure)[0]
    return None if group_value(groups[place], measure) is None else place
