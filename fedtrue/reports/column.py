"""What a table of runs is made of: columns, and the rows in their order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedtrue.reports.labels import Group, setting_text
from fedtrue.reports.measures import MeanOfLast, Measure, SeedMean
from fedtrue.reports.targets import TargetMissed
from fedtrue.runner.records import Run


@dataclass(frozen=True)
class Column:
    """A key for programs, a heading for readers, how to compute the cell of a group and how to write it."""

    key: str
    title: str
    value: Callable[[Group], Any]
    to_text: Callable[[Any], str] = setting_text
    numeric: bool = False
    best: str = ""  # "highest" or "lowest" if the column has a best value
    of_run: Callable[[Run], float | None] | None = None  # the statistic of one run, if it is one of a metric
    measure: Measure | None = None

    def number(self, group: Group) -> Any:
        """The value of a group, of a mean without its deviation; None for an empty cell."""
        value = self.value(group)
        return value.value if isinstance(value, SeedMean | MeanOfLast | TargetMissed) else value

    def sort_key(self, group: Group) -> Any:
        """Best first if the column has a best value; numbers before text, empty cells last."""
        value = self.number(group)
        if value is None:
            return (2, 0.0, "")
        if isinstance(value, int | float):
            return (0, -value if self.best == "highest" else value, "")
        return (1, 0.0, setting_text(value))


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]

    def values(self) -> list[list[Any]]:
        return [[column.value(group) for column in self.columns] for group in self.groups]

    def texts(self) -> list[list[str]]:
        return [[column.to_text(column.value(group)) for column in self.columns] for group in self.groups]
