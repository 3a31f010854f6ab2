"""Calls the callbacks of one run."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.runner.callbacks.interface import (
    HOOKS,
    STOP,
    Callback,
    Round,
    Start,
    StopRun,
    hook,
    is_function,
    round_of,
)
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Journal
from fedtrue.runner.records import Line
from fedtrue.tasks.task import Task


class Calls:
    """The callbacks of one run, in the order in which they were given."""

    def __init__(self, callbacks: Sequence[Callback] = (), settings: Mapping[str, Any] = MappingProxyType({})):
        self.callbacks, self._settings = _checked(callbacks), settings

    @property
    def rounds_per_dispatch(self) -> int | None:
        """The most rounds of a dispatch that these callbacks ask for; None if they ask for nothing."""
        asked = [getattr(callback, "rounds_per_dispatch", None) for callback in self.callbacks]
        return min((check_int("rounds_per_dispatch", most, low=1) for most in asked if most is not None), default=None)

    def check(self, task: Task, schedule: HostSchedule) -> None:
        """Lets callbacks refuse a run before anything is written or compiled."""
        for callback in self.callbacks:
            if hasattr(callback, "check"):
                callback.check(task, schedule)

    def start(self, task: Task, journal: Journal, rounds: int) -> None:
        """Before the first round, or the next one if the run is resumed."""
        if self.callbacks:
            past = [round_of(line, rounds) for line in journal.lines]
            self._call("on_start", Start(task, journal.method, rounds, past, journal.folder, self._settings))

    def rounds(self, lines: Sequence[Line], rounds: int) -> str | None:
        """Every round of a dispatch in turn; why the run must stop, None if it goes on."""
        if not self.callbacks:
            return None
        requests = list[StopRun]()
        for line in lines:
            info = round_of(line, rounds)
            requests += self._call("on_round", info)
            if info.evaluation:
                requests += self._call("on_evaluation", info)
        return requests[0].reason if requests else None

    def end(self, result: Any) -> None:
        self._call("on_end", result)

    def close(self) -> None:
        """However the run ends: `close()` of the callbacks that have it."""
        for callback in self.callbacks:
            if hasattr(callback, "close"):
                callback.close()

    def _call(self, name: str, argument: Any) -> list[StopRun]:
        requests = []
        for callback in self.callbacks:
            if function := hook(callback, name):
                try:
                    answer = function(argument)
                    request = _request(callback, name, answer) if name in ("on_round", "on_evaluation") else None
                except Exception as error:
                    place = f" after round {argument.round}" if isinstance(argument, Round) else ""
                    error.add_note(f"raised by {name} of the callback {callback_name(callback)}{place}")
                    raise
                requests += [request] if request else []
        return requests


def _checked(callbacks: Any) -> list[Callback]:
    if not isinstance(callbacks, list | tuple):
        raise ValueError(f"callbacks takes a list, not {callbacks!r}: give callbacks=[…]")
    for callback in callbacks:
        if isinstance(callback, type):
            raise ValueError(f"callback {callback.__name__} is a class: give an object, {callback.__name__}(…)")
        if not is_function(callback) and not any(hasattr(callback, name) for name in HOOKS):
            raise ValueError(
                f"callback {callback!r} has none of {', '.join(HOOKS)}, and is not a function: give it one of them"
            )
    return list(callbacks)


def _request(callback: Callback, name: str, answer: Any) -> StopRun | None:
    """STOP or True asks to stop, None or False to go on."""
    if answer is None or (isinstance(answer, bool | np.bool_) and not answer):
        return None
    if answer is True or isinstance(answer, np.bool_) or answer is STOP:
        return StopRun(f"the callback {callback_name(callback)} asked to stop")
    if isinstance(answer, StopRun):
        return answer
    raise ValueError(
        f"{name} of the callback {callback_name(callback)} returned {answer!r}: "
        "return ft.callbacks.STOP to stop the run, None to go on"
    )


def callback_name(callback: Callback) -> str:
    """A function's name, else the name of the class."""
    return getattr(callback, "__name__", type(callback).__name__)
