"""The table of claims on docs/results.md: each verdict follows from intervals that are computed from the kept records.

A claim in claims.toml has comparisons. Each says that one method is better than another, or that a method reaches a
published number, and has a 95 % interval over seeds or federations:

    than       supported if the interval is on the claimed side of 0, contradicted if it is on the other side
    within     supported if the interval of ours − published is within ± the margin, contradicted if it is outside

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
from fedtrue.reports.labels import Group, group_runs, run_status, runs_of
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
    reason: str  # why it is undecided, if the interval is not the reason


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
        reason = _why_undecided(runs, missing=sum(statistic(run) is None for run in runs))
        if reason or difference is None or difference.interval is None:
            return Outcome(UNDECIDED, text, reason)
        return Outcome(self.verdict(difference, measure), text, "")

    def verdict(self, difference: Difference, measure: Measure) -> str:
        """Of a difference that has an interval."""
        low, high = difference.value - difference.interval, difference.value + difference.interval
        if self.than is None:
            margin = self.within / (100 if measure.percent else 1)
            inside, outside = -margin <= low and high <= margin, high < -margin or margin < low
            return SUPPORTED if inside else CONTRADICTED if outside else UNDECIDED
        if self.target is not None or not measure.higher_is_better:
            low, high = -high, -low
        return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED

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
        found = [group for group in groups if _has(group, wanted)]
    if found and by is not None:
        measure = choose_measure(runs_of(found), by)
        found = [found[rank_groups(found, measure)[0]]]
    if len(found) != 1:
        raise ValueError(f"claims.toml: {len(found)} groups of runs are {wanted!r}, not one")
    return found[0]


def _has(group: Group, settings: Mapping[str, Any]) -> bool:
    return all(matches(group.settings.get(key), str(value)) for key, value in settings.items())


def _minus(ours: float | None, published: float | None, unit: float) -> float | None:
    return None if ours is None or published is None else ours - published / unit


def _why_undecided(runs: Sequence[Run], missing: int) -> str:
    diverged = sum(run_status(run) == "diverged" for run in runs)
    uncommitted = sum(tree_of(run.origin) != COMMITTED for run in runs)
    reasons = {
        f"{diverged} of {len(runs)} runs diverged": diverged,
        f"{missing} of {len(runs)} runs have no value": missing - diverged,
        "runs of uncommitted code": uncommitted,
    }
    return "; ".join(reason for reason, count in reasons.items() if count > 0)


class Claim(NamedTuple):
    """A sentence, the page behind it, and what decides it."""

    text: str
    page: str
    comparisons: Sequence[Comparison]
    measured: str = ""  # for figures without comparisons: the measurement and its verdict, in words
    verdict: str = ""

    def row(self) -> str:
        """Its row of the table."""
        outcomes = [comparison.outcome() for comparison in self.comparisons]
        reasons = dict.fromkeys(outcome.reason for outcome in outcomes if outcome.reason)
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
            Claim(**{**claim, "comparisons": [Comparison(**entry) for entry in claim.get("comparisons", [])]})
            for claim in claims
        ]
        for name, claims in sections.items()
    }


def table(section: str) -> str:
    """The table of a section, in Markdown."""
    rows = [claim.row() for claim in read_claims()[section]]
    return "\n".join(["| claim | difference, 95 % interval (pairs) | verdict |", "|---|---|---|", *rows]) + "\n"
