"""Ctrl-C and SIGTERM end a run between two dispatches, with everything saved; a second Ctrl-C ends it at once."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from fedtrue.runner.folder import how_to_resume

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A run was asked to stop, and did."""

    def __init__(self, signal_number: int, done: int | None, out: Path | None):
        kept = f"go on with {how_to_resume(out)}" if out else "nothing was kept, as no --out was given"
        after = "" if done is None else f" after round {done}"
        super().__init__(f"stopped{after}: {kept}")
        self.signal_number, self.done = signal_number, done

    def in_folder(self, out: Path) -> "Stopped":
        """The same, of a sweep whose cell this was."""
        return Stopped(self.signal_number, self.done, out)

    @property
    def exit_code(self) -> int:
        return 128 + self.signal_number


class Stop:
    """`with Stop() as stop: … stop.signal` is 0 until someone asks."""

    signal = 0

    def __enter__(self) -> "Stop":
        self._before = {number: signal.signal(number, self._asked) for number in SIGNALS}
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
