"""What a command returns, and the pieces it is shown with."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

PIPE_WIDTH = 160


@dataclass(frozen=True)
class Answer:
    """The JSON document, and how a person reads it."""

    data: Any
    show: Callable[[], None]


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool] | None = None
) -> Table:
    """A rich table; numbers, or the `numeric` columns, to the right. Where they are many, names are folded."""
    result = Table(title=title, title_justify="left")
    numeric = numeric or [any(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    for i, column in enumerate(columns):
        justify: Any = "right" if numeric[i] else "left"
        result.add_column(column, justify=justify, no_wrap=i == 0 and sum(numeric) < 2, overflow="fold")
    for row in rows:
        result.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row))
    return result


def printed(*parts: Any) -> Callable[[], None]:
    """As wide as the terminal; into a file or a pipe, wide enough for any table."""

    def show() -> None:
        console = Console(soft_wrap=True)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = PIPE_WIDTH
        console.print(*parts, sep="\n")

    return show


class RoundsBar:
    """A progress bar with rounds per second and time left; silent when not a terminal."""

    def __init__(self, total: int, name: str = "rounds"):
        self.console = Console(stderr=True)
        self.began, self.total = time.perf_counter(), total
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.line = self.bar.add_task(name, total=total, speed="compiling", latest="")

    def __enter__(self) -> "RoundsBar":
        self.bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.bar.stop()

    def __call__(self, done: int, total: int, latest: Mapping[str, float]) -> None:
        speed = f"{done / (time.perf_counter() - self.began):.3g} rounds/s"
        said = "  ".join(f"{name} {value:.4g}" for name, value in latest.items())
        self.bar.update(self.line, completed=done, speed=speed, latest=said)
