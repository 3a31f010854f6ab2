"""Which rounds end a dispatch: the last one, and those after which the host evaluates or saves."""

import re
import time

from fedtrue.algorithm.checks import check_int

CHECKPOINT_EVERY = "60s"


class HostSchedule:
    """Evaluation every `evaluate_every` rounds and after the last; checkpoints every N rounds or, as "60s", seconds."""

    def __init__(self, rounds: int, evaluate_every: int | None = None, checkpoint_every: int | str = CHECKPOINT_EVERY):
        self.rounds = check_int("rounds", rounds, low=1)
        self.evaluate_every = check_int("evaluate_every", evaluate_every, low=1) if evaluate_every is not None else None
        self.checkpoint_every, self.checkpoint_seconds = _rounds_or_seconds(checkpoint_every)
        self._last_checkpoint = time.monotonic()

    def next(self, done: int) -> int:
        """The round before which a dispatch that starts after `done` rounds must end."""
        steps = [every for every in (self.evaluate_every, self.checkpoint_every) if every]
        return min([self.rounds, *((done // every + 1) * every for every in steps)])

    def evaluation_due(self, done: int) -> bool:
        return done == self.rounds or bool(self.evaluate_every and done % self.evaluate_every == 0)

    def checkpoint_due(self, done: int) -> bool:
        """Whether to save now. If True, the seconds until the next checkpoint count from this call."""
        overdue = (
            self.checkpoint_seconds is not None and time.monotonic() - self._last_checkpoint >= self.checkpoint_seconds
        )
        due = overdue or done == self.rounds or bool(self.checkpoint_every and done % self.checkpoint_every == 0)
        if due:
            self._last_checkpoint = time.monotonic()
        return due


def _rounds_or_seconds(every: int | str) -> tuple[int | None, float | None]:
    if isinstance(every, str):
        if not (match := re.fullmatch(r"(\d+(?:\.\d+)?) ?s", every)):
            raise ValueError(f'checkpoint_every takes rounds (50) or seconds ("60s"), not {every!r}')
        return None, float(match[1])
    return check_int("checkpoint_every", every, low=1), None
