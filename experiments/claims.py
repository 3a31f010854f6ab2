"""The table of claims on docs/results.md: each verdict follows from intervals that are computed from the kept records.

A claim in claims.toml has comparisons. Each says that one method is better than another, that a method reaches a
published number, or that more of its learning rates are good, and has a 95 % interval over seeds or federations:

    than         supported if the interval is on the claimed side of 0, contradicted if it is on the other side
    within       supported if the interval of ours − published is within ± the margin, contradicted if it is outside
    good_share   as `than`, for the number of cells that reach this share of the best

The verdict: *holds* if all comparisons are supported, *holds in part* if some are, *does not hold* if none is and at
least one is contradicted, else *not decided*. A comparison is undecided, whatever its interval, if a run that it needs
is missing, diverged or was trained from uncommitted code.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedtrue.reports.differences import Difference, matches, mean_difference, paired_difference
from fedtrue.reports.labels import Group, flatten_config, group_runs, run_status, runs_of
from fedtrue.reports.measures import Measure, choose_measure, final_value, mean_last, rank_groups
from fedtrue.reports.number_text import difference_text
from fedtrue.reports.targets import rounds_to
from fedtrue.runner.packing import COMMITTED, tree_of
from fedtrue.runner.records import Run, find_runs, read_run

FOLDER = Path(__file__).resolve().parent
CLAIMS = FOLDER / "claims.toml"
SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"


class Outcome(NamedTuple):
    """What the records say of one comparison."""

    verdict: str
    text: str  # 'server SGD: +0.35 ± 1.91 (3)'
    reasons: Sequence[str]  # why it is undecided, if the interval is not the reason


@dataclass(frozen=True)
class Comparison:
    """`of` against `than`, or against its published number; groups of runs are chosen by label or by settings."""

    records: Sequence[str]  # names of archives
    of: str | Mapping[str, Any]
    than: str | Mapping[str, Any] | None = None  # None: the published number
    within: float | None = None  # margin around the published number, in the unit of the table
    metric: str = "test.accuracy"
    statistic: str = "mean_last"  # or "final"
    target: float | None = None  # instead: the rounds until the metric first reaches this value, fewer are better
    over: Sequence[str] = ("seed",)
    chosen_by: str | None = None  # of several groups with the settings, the one with the best mean of this metric
    label: str = ""

    def outcome(self) -> Outcome:
        """Its interval, and which side of the claim it is on."""
        groups = _groups(tuple(self.records), tuple(self.over))
        ours = _chosen(groups, self.of, self.chosen_by)
        theirs = None if self.than is None else _chosen(groups, self.than, self.chosen_by)
        measure = choose_measure(ours.runs, self.metric)
        statistic = self._statistic(measure)
        runs = [*ours.runs, *(theirs.runs if theirs else ())]
        if theirs is None:
            unit = 100 if measure.percent else 1
            difference = mean_difference([_minus(statistic(run), ours.reference, unit) for run in ours.runs])
        else:
            difference = paired_difference(ours, theirs, statistic)
        text = self._text(difference, measure)
        reasons = _why_undecided(runs, missing=sum(statistic(run) is None for run in runs))
        if reasons or difference is None or difference.interval is None:
            return Outcome(UNDECIDED, text, reasons)
        return Outcome(self.verdict(difference, measure), text, ())

    def verdict(self, difference: Difference, measure: Measure) -> str:
        """Of a difference that has an interval."""
        if self.than is not None:
            return _side_of_zero(difference, measure.higher_is_better and self.target is None)
        low, high = _ends(difference)
        margin = self.within / (100 if measure.percent else 1)
        inside, outside = -margin <= low and high <= margin, high < -margin or margin < low
        return SUPPORTED if inside else CONTRADICTED if outside else UNDECIDED

    def _statistic(self, measure: Measure) -> Callable[[Run], float | None]:
        if self.target is not None:
            return lambda run: rounds_to(run, measure, self.target)
        if self.statistic == "final":
            return lambda run: final_value(run, measure)
        return lambda run: mean.value if (mean := mean_last(run, measure)) else None

    def _text(self, difference: Difference | None, measure: Measure) -> str:
        name = f"{self.label}: " if self.label else ""
        if difference is None:
            return f"{name}–"
        text = difference_text(difference, measure)
        if self.target is not None:
            half = "" if difference.interval is None else f" ± {difference.interval:,.0f}"
            text = f"{difference.value:+,.0f}{half} rounds".replace("-", "−")
        return f"{name}{text} ({difference.pairs})"


def _ends(difference: Difference) -> tuple[float, float]:
    return difference.value - difference.interval, difference.value + difference.interval


def _side_of_zero(difference: Difference, higher_is_better: bool) -> str:
    low, high = _ends(difference)
    better, worse = (low > 0, high < 0) if higher_is_better else (high < 0, low > 0)
    return SUPPORTED if better else CONTRADICTED if worse else UNDECIDED


@dataclass(frozen=True)
class GoodCells:
    """How many cells of a grid reach a share of the best one, `of` against `than`, seed by seed."""

    records: Sequence[str]
    of: Mapping[str, Any]
    than: Mapping[str, Any]
    good_share: float
    own_best: bool  # of the best cell of the method itself; else of the best of both methods
    metric: str = "test.accuracy"
    label: str = ""

    def outcome(self) -> Outcome:
        """The interval of the difference of the two counts."""
        runs = [run for name in self.records for run in _runs(name)]
        measure = choose_measure(runs, self.metric)
        by_seed: dict[Any, list[Run]] = {}
        for run in runs:
            by_seed.setdefault(run.config.get("seed", 0), []).append(run)
        difference = mean_difference([self._difference(of_seed, measure) for of_seed in by_seed.values()])
        half = "" if difference.interval is None else f" ± {difference.interval:.1f}"
        text = f"{self.label}: {difference.value:+.1f}{half} cells ({difference.pairs})".replace("-", "−")
        reasons = _uncommitted(runs)
        if reasons or difference.interval is None:
            return Outcome(UNDECIDED, text, reasons)
        return Outcome(_side_of_zero(difference, higher_is_better=True), text, ())

    def _difference(self, runs: Sequence[Run], measure: Measure) -> float:
        ours, theirs = (self._values(runs, settings, measure) for settings in (self.of, self.than))
        best = max(ours + theirs)
        count = lambda values: sum(
            value >= self.good_share * (max(values) if self.own_best else best) for value in values
        )
        return count(ours) - count(theirs)

    def _values(self, runs: Sequence[Run], settings: Mapping[str, Any], measure: Measure) -> list[float]:
        means = [mean_last(run, measure) for run in runs if _has(flatten_config(run.config), settings)]
        return [0.0 if mean is None else mean.value for mean in means]  # a cell without a value is not good


def _groups(records: tuple[str, ...], over: tuple[str, ...]) -> list[Group]:
    return group_runs([run for name in records for run in _runs(name)], over)


@cache
def _runs(name: str) -> list[Run]:
    return [read_run(path) for path in find_runs([FOLDER / "records" / f"{name}.runs.xz"])]


def _chosen(groups: Sequence[Group], wanted: str | Mapping[str, Any], by: str | None) -> Group:
    """The one group with this label or these settings; of several, the best by the metric `by`."""
    if isinstance(wanted, str):
        found = [group for group in groups if group.name == wanted]
    else:
        found = [group for group in groups if _has(group.settings, wanted)]
    if found and by is not None:
        measure = choose_measure(runs_of(found), by)
        found = [found[rank_groups(found, measure)[0]]]
    if len(found) != 1:
        raise ValueError(f"claims.toml: {len(found)} groups of runs are {wanted!r}, not one")
    return found[0]


def _has(own: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return all(matches(own.get(key), str(value)) for key, value in settings.items())


def _minus(ours: float | None, published: float | None, unit: float) -> float | None:
    return None if ours is None or published is None else ours - published / unit


def _why_undecided(runs: Sequence[Run], missing: int) -> list[str]:
    diverged = sum(run_status(run) == "diverged" for run in runs)
    reasons = {
        f"{diverged} of {len(runs)} runs diverged": diverged,
        f"{missing} of {len(runs)} runs have no value": missing - diverged,
    }
    return [reason for reason, count in reasons.items() if count > 0] + _uncommitted(runs)


def _uncommitted(runs: Sequence[Run]) -> list[str]:
    return ["runs of uncommitted code"] if any(tree_of(run.origin) != COMMITTED for run in runs) else []


class Claim(NamedTuple):
    """A sentence, the page behind it, and what decides it."""

    text: str
    page: str
    comparisons: Sequence[Comparison | GoodCells]
    measured: str = ""  # for figures without comparisons: the measurement and its verdict, in words
    verdict: str = ""

    def row(self) -> str:
        """Its row of the table."""
        outcomes = [comparison.outcome() for comparison in self.comparisons]
        reasons = dict.fromkeys(reason for outcome in outcomes for reason in outcome.reasons)
        measured = "<br>".join(filter(None, [*(outcome.text for outcome in outcomes), *reasons, self.measured]))
        verdict = self.verdict or verdict_of([outcome.verdict for outcome in outcomes])
        return f"| {self.text} | {measured} | [{verdict}]({self.page}) |"


def verdict_of(comparisons: Sequence[str]) -> str:
    """The verdict that the comparisons of a claim come to."""
    if all(verdict == SUPPORTED for verdict in comparisons):
        return "holds"
    if SUPPORTED in comparisons:
        return "holds in part"
    return "does not hold" if CONTRADICTED in comparisons else "not decided"


def read_claims() -> dict[str, list[Claim]]:
    """Section → its claims."""
    sections = tomllib.loads(CLAIMS.read_text())
    return {
        name: [
            Claim(**{**claim, "comparisons": [_comparison(entry) for entry in claim.get("comparisons", [])]})
            for claim in claims
        ]
        for name, claims in sections.items()
    }


def _comparison(entry: Mapping[str, Any]) -> Comparison | GoodCells:
    return GoodCells(**entry) if "good_share" in entry else Comparison(**entry)


def table(section: str) -> str:
    """The table of a section, in Markdown."""
    rows = [claim.row() for claim in read_claims()[section]]
    return "\n".join(["| claim | difference, 95 % interval (pairs) | verdict |", "|---|---|---|", *rows]) + "\n"
