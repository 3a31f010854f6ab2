"""Ctrl-C and SIGTERM end a run between two dispatches, with everything saved; a second Ctrl-C ends it at once."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A run was asked to stop, and did."""

    def __init__(self, signal_number: int, done: int, out: Path | None):
        kept = f"go on with `fedtrue resume {out}`" if out else "nothing was kept, as no --out was given"
        super().__init__(f"stopped after round {done}: {kept}")
        self.exit_code = 128 + signal_number


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
