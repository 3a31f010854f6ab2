"""The result of a command, and the tables that show it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 160  # characters per line if the output is not a terminal
CELL_MARGIN = 3  # characters between two cells
MAX_UNBROKEN = 20  # characters; a column whose texts are all shorter is never split over two lines


@dataclass(frozen=True)
class Answer:
    """The result of a command: `data` is printed with --json, otherwise `show` prints it as text."""

    data: Any
    show: Callable[[], None]


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numeric: Sequence[bool] | None = None,
    *,
    grouped: bool = False,
) -> Table:
    """A rich table.

    Args:
        title: text above the table.
        columns: headings.
        rows: cells; floats are shown with six digits.
        numeric: which columns are aligned right (default: those that contain numbers).
        grouped: show equal values of the first column only once, with a line between the groups.
    """
    result = Table(title=title, title_justify="left")
    numeric = numeric or [any(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    texts = [[f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    for i, column in enumerate(columns):
        justify: Any = "right" if numeric[i] else "left"
        result.add_column(column, justify=justify, overflow="fold")
    _keep_words_whole(result, columns, texts, numeric)
    group: str | None = None
    for first, *others in texts:
        if grouped and group not in (None, first):
            result.add_section()
        result.add_row("" if grouped and group == first else first, *others)
        group = first
    return result


def _keep_words_whole(
    result: Table, columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    """Sets the widths of columns such that cells stay on one line if they fit; headings are split between words."""
    cells = [max((len(row[i]) for row in texts), default=0) for i in range(len(columns))]
    narrowest = [max([cells[i], *map(len, column.split())]) for i, column in enumerate(columns)]
    spare = output_width() - 1 - sum(width + CELL_MARGIN for width in narrowest)
    for i, column in enumerate(result.columns):
        if spare >= 0:
            longer_heading = max(0, len(columns[i]) - narrowest[i])
            column.width = narrowest[i] + min(longer_heading, spare // (len(columns) - i))
            spare -= column.width - narrowest[i]
        elif sum(numeric) < 2:  # a table with many numbers needs the space for them
            column.no_wrap = i == 0 or max(cells[i], len(columns[i])) <= MAX_UNBROKEN


def output_width() -> int:
    """The width of the terminal; PIPE_WIDTH for a file or pipe."""
    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else PIPE_WIDTH


def printer(*parts: Any) -> Callable[[], None]:
    """A function that prints tables and lines."""

    def show() -> None:
        Console(soft_wrap=True, width=output_width()).print(*parts, sep="\n")

    return show
