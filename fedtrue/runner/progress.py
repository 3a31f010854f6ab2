"""How far a run is: a live bar in a terminal, one line that is replaced in a notebook, some lines in a log file."""

import html
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from fedtrue.runner.records import Line

Progress = Callable[[int, int, Mapping[str, float]], None]  # (rounds done, rounds, latest metrics)
FIRST_LINE_SECONDS = 10.0  # a shorter run writes no line into a log file
LINES_PER_DOUBLING = 14  # about so many lines each time that the run gets twice as long


def shown(progress: bool | Progress | None, total: int) -> AbstractContextManager[Progress | None]:
    """What `progress` asks for: True is a display that fits where the program runs, a function is called itself."""
    if progress is True:
        from rich.console import Console

        return display_for(Console(stderr=True), total)
    if not progress:
        return nullcontext(None)
    if not callable(progress):
        raise ValueError(f"progress takes True or a function (rounds done, rounds, metrics), not {progress!r}")
    return nullcontext(progress)


def display_for(console: Any, total: int) -> "RoundsBar | NotebookLine | LogLines":
    """A display for a rich console."""
    if console.is_jupyter:
        return NotebookLine(total)
    return RoundsBar(total) if console.is_terminal else LogLines(total)


class RoundsBar:
    """A progress bar with rounds per second, time left and the latest metrics; hidden if stderr is not a terminal."""

    def __init__(self, total: int, name: str = "rounds"):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True)
        self._pace = Pace()
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
        rate = self._pace(done)
        speed = "compiled" if rate is None else f"{rate:.3g} rounds/s"
        self.bar.update(self.line, completed=done, speed=speed, latest=metrics_text(latest))


class LogLines:
    """Lines for a log file: the first after ten seconds, then seldom enough that a long run does not fill the file."""

    def __init__(
        self,
        total: int,
        write: Callable[[str], Any] = lambda line: print(line, file=sys.stderr, flush=True),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._write, self._clock, self._pace = write, clock, Pace(clock)
        self._start = clock()
        self._next = self._start + FIRST_LINE_SECONDS

    def __enter__(self) -> "LogLines":
        return self

    def __exit__(self, *exception: Any) -> None:
        pass

    def __call__(self, done: int, total: int, latest: Mapping[str, float]) -> None:
        rate, now = self._pace(done), self._clock()
        if now >= self._next:
            self._write(progress_text(done, total, rate, latest))
            self._next = now + max(FIRST_LINE_SECONDS, (now - self._start) / LINES_PER_DOUBLING)


class NotebookLine:
    """One line with a bar that is replaced after every dispatch; it needs nothing but IPython."""

    def __init__(self, total: int):
        self._pace, self._handle, self._total = Pace(), None, total

    def __enter__(self) -> "NotebookLine":
        self._show(0, "compiling")
        return self

    def __exit__(self, *exception: Any) -> None:
        pass

    def __call__(self, done: int, total: int, latest: Mapping[str, float]) -> None:
        self._show(done, progress_text(done, total, self._pace(done), latest))

    def _show(self, done: int, text: str) -> None:
        from IPython.display import display

        bar = f'<progress value="{done}" max="{self._total}"></progress> {html.escape(text)}'
        content = {"text/plain": text, "text/html": bar}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class Pace:
    """Rounds per second since the end of the first dispatch, which compiles; None until the second has ended."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._first: tuple[float, int] | None = None  # when the first dispatch ended, and after which round

    def __call__(self, done: int) -> float | None:
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
            return None
        began, before = self._first
        return (done - before) / max(now - began, 1e-9)


def progress_text(done: int, total: int, rate: float | None, latest: Mapping[str, float]) -> str:
    """'round 40 of 200, 3.2 rounds/s, 0:00:50 left: loss 0.31  test.accuracy 0.62'."""
    pace = f", {rate:.3g} rounds/s, {timedelta(seconds=round((total - done) / rate))} left" if rate else ""
    return f"round {done} of {total}{pace}: {metrics_text(latest)}"


def metrics_text(metrics: Mapping[str, float]) -> str:
    """'loss 4.4  accuracy 0.12'."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def latest_evaluation(lines: list[Line], before: Mapping[str, float]) -> Mapping[str, float]:
    """{"test.accuracy": …} of the last of these lines that has an evaluation; else `before`."""
    evaluated = next((line["evaluation"] for line in reversed(lines) if "evaluation" in line), None)
    if evaluated is None:
        return before
    return {f"{split}.{name}": value for split, metrics in evaluated.items() for name, value in metrics.items()}
