"""Where dispatches end: at the last round, and wherever the host has something to do."""

import re
import time

from fedtrue.algorithm.checks import check_int

CHECKPOINT_EVERY = "60s"


class HostSchedule:
    """Evaluation every so many rounds and after the last; checkpoints every so many rounds or, as "60s", seconds."""

    def __init__(self, rounds: int, evaluate_every: int | None = None, checkpoint_every: int | str = CHECKPOINT_EVERY):
        self.rounds = check_int("rounds", rounds)
        self.evaluate_every = check_int("evaluate_every", evaluate_every, low=1) if evaluate_every is not None else None
        self.checkpoint_every, self.checkpoint_seconds = _rounds_or_seconds(checkpoint_every)
        self._saved = time.monotonic()

    def next(self, done: int) -> int:
        """The round before which a dispatch that starts after `done` rounds must end."""
        steps = [every for every in (self.evaluate_every, self.checkpoint_every) if every]
        return min([self.rounds, *((done // every + 1) * every for every in steps)])

    def evaluation_due(self, done: int) -> bool:
        return done == self.rounds or bool(self.evaluate_every and done % self.evaluate_every == 0)

    def checkpoint_due(self, done: int) -> bool:
        """Asking counts as saving."""
        late = self.checkpoint_seconds is not None and time.monotonic() - self._saved >= self.checkpoint_seconds
        due = late or done == self.rounds or bool(self.checkpoint_every and done % self.checkpoint_every == 0)
        self._saved = time.monotonic() if due else self._saved
        return due


def _rounds_or_seconds(every: int | str) -> tuple[int | None, float | None]:
    if isinstance(every, str):
        if not (match := re.fullmatch(r"(\d+(?:\.\d+)?) ?s", every)):
            raise ValueError(f'checkpoint_every takes rounds (50) or seconds ("60s"), not {every!r}')
        return None, float(match[1])
    return check_int("checkpoint_every", every, low=1), None
