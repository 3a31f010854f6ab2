"""Draws the differences of a table from its baseline, with their intervals: one line per row, the best on top."""

from pathlib import Path
from typing import Any

from fedtrue.reports.canvas import picture
from fedtrue.reports.column import Column, Table
from fedtrue.reports.differences import Difference
from fedtrue.reports.labels import Group, describe_settings
from fedtrue.reports.measures import Measure
from fedtrue.reports.palette import COLOURS

BETTER, WORSE, NOT_DECIDED = COLOURS[0], COLOURS[1], "#888888"


def draw_differences(table: Table, path: Path) -> None:
    """Of the first metric of the table; a table without differences is refused. Colours repeat the signs."""
    column = next((column for column in table.columns if column.key.startswith("difference.")), None)
    if column is None or column.measure is None:
        raise ValueError("a picture shows differences from a baseline: add --against, e.g. --against method=fedavg")
    found = [(_name(table, group), column.value(group)) for group in table.groups]
    rows = [(name, difference) for name, difference in found if difference is not None]
    if not rows:
        raise ValueError("no row has a partner in the baseline: see --over, the settings in which partners differ")
    sign = 1 if column.measure.higher_is_better else -1
    rows.sort(key=lambda row: sign * row[1].value)
    with picture(path, (8, 0.8 + 0.27 * len(rows))) as figure:
        _draw(figure.subplots(), rows, column, column.measure)


def _name(table: Table, group: Group) -> str:
    """The settings that the table shows; its own name if it shows that, or no settings."""
    shown = [column.key for column in table.columns if column.key in group.settings]
    if not shown or any(column.key == "run" for column in table.columns):
        return group.name
    return describe_settings(group.settings, shown)


def _draw(axes: Any, rows: list[tuple[str, Difference]], column: Column, measure: Measure) -> None:
    scale = 100 if measure.percent else 1
    for height, (_, difference) in enumerate(rows):
        axes.errorbar(
            scale * difference.value,
            height,
            xerr=None if difference.interval is None else scale * difference.interval,
            color=_colour(difference, measure),
            fmt="o",
            markersize=5,
            capsize=3,
        )
    axes.axvline(0, color="#999999", linewidth=1)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set(xlabel=f"{measure.title}: {column.title}", ylim=(-0.7, len(rows) - 0.3))
    axes.grid(alpha=0.3, axis="x")
    axes.spines[["top", "right"]].set_visible(False)


def _colour(difference: Difference, measure: Measure) -> str:
    """That of better or worse if 0 is outside the interval."""
    if difference.interval is None or abs(difference.value) <= difference.interval:
        return NOT_DECIDED
    return BETTER if (difference.value > 0) == measure.higher_is_better else WORSE
