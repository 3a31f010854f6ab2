"""What callbacks see and what they may return."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedtrue.runner.records import NOT_METRICS, Line
from fedtrue.spec import Spec
from fedtrue.tasks.task import Task

Callback: TypeAlias = Any  # an object with some of the hooks, or a function, which is `on_round`


@dataclass(frozen=True)
class StopRun:
    """Returned by a callback to stop the run; `reason` is kept in the run's summary."""

    reason: str = ""


STOP = StopRun()


@dataclass(frozen=True)
class Round:
    """One round that was trained, as callbacks and `ft.rounds` see it."""

    round: int  # rounds done, this one included: the first round is 1
    rounds: int | None  # how many were asked for; None: no end
    metrics: dict[str, float]  # on the training batches of the cohort
    evaluation: dict[str, dict[str, float]]  # split → metric → mean; empty if the model was not evaluated
    clients: int  # how many entered the mean
    dropped: int  # whose update was not finite
    missing: int  # that did not reply
    seconds: float
    bytes_up: int
    bytes_down: int
    line: Mapping[str, Any]  # all that metrics.jsonl has of this round

    def __repr__(self) -> str:
        numbers = "".join(f", {name}={value:.6g}" for name, value in self.scalars().items())
        return f"Round({self.round}{'' if self.rounds is None else f' of {self.rounds}'}{numbers})"

    def scalars(self) -> dict[str, float]:
        """The metrics as {"train.loss": …, "test.accuracy": …}."""
        splits = {"train": self.metrics, **self.evaluation}
        return {f"{split}.{name}": value for split, metrics in splits.items() for name, value in metrics.items()}


def round_of(line: Line, rounds: int | None) -> Round:
    """From a line of metrics.jsonl."""
    counts = {name: line[name] for name in ("clients", "dropped", "seconds", "bytes_up", "bytes_down")}
    return Round(
        line["round"] + 1,
        rounds,
        train_metrics(line),
        line.get("evaluation", {}),
        missing=line.get("missing", 0),
        line=line,
        **counts,
    )


def train_metrics(line: Line) -> dict[str, float]:
    """The metrics on the training batches of the cohort."""
    return {name: value for name, value in line.items() if name not in NOT_METRICS}


@dataclass(frozen=True)
class Start:
    """What a run is, before its first round or, if it is resumed, before its next."""

    task: Task
    method: Spec | None
    rounds: int  # how many were asked for
    past: Sequence[Round]  # the rounds that were trained before; empty for a new run
    folder: Path | None
    settings: Mapping[str, Any]  # as in config.toml; empty without a folder


def hook(callback: Callback, name: str) -> Callable[[Any], Any] | None:
    """A callback's hook of this name; a plain function is `on_round`."""
    found = getattr(callback, name, None)
    if found is None and name == "on_round" and is_function(callback):
        return callback
    return found


def is_function(callback: Callback) -> bool:
    """Whether a callback is a plain function, not an object with hooks."""
    return callable(callback) and not any(hasattr(callback, name) for name in HOOKS)


HOOKS = ("on_start", "on_round", "on_evaluation", "on_end")
