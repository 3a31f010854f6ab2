"""Ctrl-C and SIGTERM end a run after the current dispatch, with a checkpoint; a second Ctrl-C ends it immediately."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from fedtrue.runner.folder import how_to_resume

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A run was stopped by a signal."""

    def __init__(self, signal_number: int, done: int | None, out: Path | None, cure: str | None = None):
        saved = f"resume with {how_to_resume(out)}" if out else "nothing was saved, as no folder (out) was given"
        after = "" if done is None else f" after round {done}"
        super().__init__(f"stopped{after}: {cure or saved}")
        self.signal_number, self.done = signal_number, done

    def in_folder(self, out: Path) -> "Stopped":
        """The same for the sweep in `out`, of which the stopped run is a cell."""
        return Stopped(self.signal_number, self.done, out)

    def with_cure(self, cure: str) -> "Stopped":
        """The same, continued in another way than by a resume."""
        return Stopped(self.signal_number, self.done, None, cure)

    @property
    def exit_code(self) -> int:
        return 128 + self.signal_number


class Stop:
    """`with Stop() as stop:` catches the signals; `stop.signal` is 0 until one arrives."""

    signal = 0

    def __enter__(self) -> "Stop":
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
