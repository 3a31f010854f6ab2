"""The best of several rows that differ in settings such as learning rates, and what the others were like."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedtrue.reports.column import Column
from fedtrue.reports.labels import PARTS, RATES, Group
from fedtrue.reports.measures import SeedMean

COLUMNS = TRIED, MEDIAN_TRIED, AT_EDGE = "tried", "median_tried", "at_edge"


@dataclass(frozen=True)
class Selection:
    """The best group for each combination of the columns' values, in order of first appearance.

    A group with a diverged seed is chosen only if no other group of its combination has a value.
    """

    tried: Sequence[Sequence[Group]]  # of each combination all groups, best first
    by: Column

    @property
    def chosen(self) -> list[Group]:
        return [groups[0] for groups in self.tried]

    @property
    def ranked(self) -> list[Group]:
        """The chosen groups, best first."""
        return sort_best_first(self.chosen, self.by)

    def columns(self) -> list[Column]:
        """How many rows there were, their median, and whose learning rate is at the edge of the grid."""
        median_title = f"median of these: {self.by.title}"
        edges = lambda group: ", ".join(_edges(group, self._tried(group))) or None
        return [
            Column(TRIED, "tried", lambda group: len(self._tried(group)), numeric=True),
            Column(MEDIAN_TRIED, median_title, self._median, self.by.to_text, numeric=True),
            Column(AT_EDGE, "rates at the edge", edges),
        ]

    def _tried(self, group: Group) -> Sequence[Group]:
        return next(groups for groups in self.tried if groups[0] is group)

    def _median(self, group: Group) -> SeedMean | None:
        """Rows that diverged count as worse than all others."""
        values = [self.by.number(other) for other in self._tried(group)]
        middle = values[(len(values) - 1) // 2 : len(values) // 2 + 1]
        return None if None in middle else SeedMean(fmean(middle), None, 1)


def select_best(groups: Sequence[Group], per: Sequence[Column], by: Column | None) -> Selection:
    """By the column `by`, which must have a best value."""
    if by is None or not by.best:
        reason = "" if by is None else f", and {by.key!r} has none"
        raise ValueError(f"--best-per needs --sort by a column with a best value{reason}: e.g. --sort test.accuracy")
    combinations: dict[str, list[Group]] = {}
    for group in groups:
        combinations.setdefault(repr([column.value(group) for column in per]), []).append(group)
    return Selection([sort_best_first(members, by) for members in combinations.values()], by)


def sort_best_first(groups: Sequence[Group], by: Column) -> list[Group]:
    """Groups without a value last, before them those with a diverged seed."""
    return sorted(groups, key=lambda g: (by.number(g) is None, "diverged" in g.status, by.sort_key(g)))


def _edges(group: Group, tried: Sequence[Group]) -> list[str]:
    """The parts whose learning rate is the lowest or highest that was tried: a better one may lie outside."""
    found = []
    for part, key in zip(PARTS, RATES.values()):
        rates = sorted({other.settings[key] for other in tried if key in other.settings})
        if len(rates) > 1 and group.settings.get(key) in (rates[0], rates[-1]):
            found.append(part)
    return found
