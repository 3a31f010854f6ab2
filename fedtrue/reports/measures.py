"""The numbers that runs record, by name: "test.accuracy", "validation.loss", "train.loss", "pseudo_gradient_norm"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from fedtrue.names import look_up
from fedtrue.reports.labels import Group, run_status
from fedtrue.runner import summary
from fedtrue.runner.records import LAST, NOT_METRICS, Run
from fedtrue.runner.summary import LastMean, declared_metrics
from fedtrue.tasks.metric import Metric, recorded_metric

ROUND_MEASURES = ("pseudo_gradient_norm", "dropped", "idle_steps")  # recorded per round, without a split
SPLITS = ("test", "validation", "unseen", "train")  # runs are compared by the first one that they have
HELD_OUT = ("test.", "validation.", "unseen.")  # evaluated in some rounds only; all others in every round
MAX_CURVES_AT_FIRST = 12  # more cannot be told apart in one figure; the page draws others on request


class SeedMean(NamedTuple):
    """A mean over seeds; the deviation is the sample standard deviation (n − 1), None for one seed."""

    value: float
    deviation: float | None
    seeds: int


class MeanOfLast(NamedTuple):
    """The mean over seeds of `mean_last`; how many evaluations and rounds each has, None if the seeds differ."""

    value: float
    deviation: float | None
    seeds: int
    evaluations: int | None
    rounds: int | None


@dataclass(frozen=True)
class Measure:
    """A number that runs record, how it is compared and how it is shown."""

    key: str
    higher_is_better: bool = False
    percent: bool = False  # a fraction of 1 in files, shown in percent

    @property
    def title(self) -> str:
        """'test.accuracy' → 'test accuracy'."""
        return self.key.replace(".", " ").replace("_", " ")

    @property
    def unit(self) -> str:
        return " (%)" if self.percent else ""


def measures(runs: Sequence[Run]) -> list[Measure]:
    """Every measure that at least one of the runs has, the one by which runs are compared first."""
    keys: dict[str, None] = {}
    for run in runs:
        keys.update(dict.fromkeys(f"{split}.{name}" for split, metrics in run.evaluations.items() for name in metrics))
        keys.update(dict.fromkeys(f"train.{name}" for name in run.rounds if name not in NOT_METRICS))
        keys.update(dict.fromkeys(name for name in ROUND_MEASURES if _has_nonzero(run.rounds.get(name))))
    declared = declared_by_runs(runs)
    return sort_measures([_measure(key, declared) for key in keys])


def sort_measures(unsorted: Sequence[Measure]) -> list[Measure]:
    """Test before validation before train; within a split, measures where higher is better before losses."""
    split_of = lambda measure: measure.key.split(".")[0]
    rank = lambda measure: (
        SPLITS.index(split_of(measure)) if split_of(measure) in SPLITS else len(SPLITS),
        not measure.higher_is_better,
        "loss" not in measure.key,
    )
    return sorted(unsorted, key=rank)


def _measure(key: str, declared: dict[str, Metric]) -> Measure:
    metric = recorded_metric(key.rpartition(".")[2], declared)
    return Measure(key, metric.higher_is_better, metric.percent)


def declared_by_runs(runs: Sequence[Run]) -> dict[str, Metric]:
    """How the runs declare their metrics; runs that contradict each other cannot be compared."""
    declared: dict[str, Metric] = {}
    for run in runs:
        for name, metric in declared_metrics(run).items():
            if declared.setdefault(name, metric) != metric:
                raise ValueError(
                    f"{run.path} and another of these runs declare metric {name!r} differently: report them separately"
                )
    return declared


def _has_nonzero(values: np.ndarray | None) -> bool:
    """Whether a curve would show anything: a run in which no client was dropped needs no curve of `dropped`."""
    return values is not None and bool(np.any(np.nan_to_num(values) != 0))


def choose_measure(runs: Sequence[Run], key: str | None = None) -> Measure:
    """The measure of that name, or the first one; an unknown name is an error that suggests the nearest."""
    available = measures(runs)
    if not available:
        raise ValueError(
            "no round has been recorded yet in any of these runs: wait for the first round, then try again"
        )
    return look_up("metric", {measure.key: measure for measure in available}, key) if key else available[0]


def recorded_values(run: Run, measure: Measure) -> tuple[np.ndarray, np.ndarray] | None:
    """(round indices, values) of a measure, or None if the run does not have it."""
    split, _, name = measure.key.rpartition(".")
    if split in ("", "train"):
        return (run.rounds["round"], run.rounds[name]) if name in run.rounds else None
    return run.evaluations.get(split, {}).get(name)


def final_value(run: Run, measure: Measure) -> float | None:
    recorded = recorded_values(run, measure)
    if recorded is None or not len(recorded[1]) or not math.isfinite(recorded[1][-1]):
        return None
    return float(recorded[1][-1])


def mean_last(run: Run, measure: Measure) -> LastMean | None:
    """The mean over the last 100 rounds, as in the paper; None if nothing finite was recorded."""
    recorded = recorded_values(run, measure)
    if recorded is None:
        return None
    value = summary.mean_last(*recorded, done=run.rounds_done)
    return value if value.evaluations else None


def best_value(run: Run, measure: Measure) -> float | None:
    recorded = recorded_values(run, measure)
    if recorded is None or not np.isfinite(recorded[1]).any():
        return None
    return summary.best(*recorded, measure.higher_is_better).value


def mean_over_seeds(values: Sequence[float | None]) -> SeedMean | None:
    """The mean over the seeds that have a finite value."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    return SeedMean(fmean(finite), stdev(finite) if len(finite) > 1 else None, len(finite))


def group_value(group: Group, measure: Measure) -> MeanOfLast | None:
    """The mean of `mean_last` over the seeds that did not diverge."""
    per_seed = last_means(group.runs, measure)
    over_seeds = mean_over_seeds([seed.value for seed in per_seed])
    if over_seeds is None:
        return None
    if_equal = lambda counts: counts.pop() if len(counts) == 1 else None
    return MeanOfLast(
        *over_seeds, if_equal({seed.evaluations for seed in per_seed}), if_equal({seed.rounds for seed in per_seed})
    )


def last_means(runs: Sequence[Run], measure: Measure) -> list[LastMean]:
    """`mean_last` of the runs that have a value and did not diverge."""
    means = (mean_last(run, measure) for run in runs if run_status(run) != "diverged")
    return [mean for mean in means if mean is not None]


def mean_last_title(measure: Measure, means: Sequence[LastMean]) -> str:
    """'test accuracy, mean of the 10 evaluations in the last 100 rounds': what is true of all these runs."""
    counts, spans = {mean.evaluations for mean in means}, {mean.rounds for mean in means} or {LAST}
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


def rank_groups(groups: Sequence[Group], measure: Measure) -> list[int]:
    """Indices of the groups, best `mean_last` first; then groups with a diverged seed, then groups without a value."""
    sign = -1 if measure.higher_is_better else 1
    values = [group_value(group, measure) for group in groups]
    ranks = [
        (value is None, "diverged" in group.status, sign * value.value if value else 0.0, index)
        for index, (group, value) in enumerate(zip(groups, values))
    ]
    return [index for *_, index in sorted(ranks)]


def best_group(groups: Sequence[Group], measure: Measure) -> int | None:
    """The index of the best group; None if no group has a value."""
    index = rank_groups(groups, measure)[0]
    return None if group_value(groups[index], measure) is None else index
