"""What one run leaves behind: its lines and, with a folder, its files."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from fedtrue.engine.capacity import MessageBytes
from fedtrue.engine.round import RoundInfo, State
from fedtrue.files import write_atomically
from fedtrue.runner import checkpoint, records
from fedtrue.runner.checkpoint import Checkpoint
from fedtrue.runner.evaluation import Evaluation, means
from fedtrue.runner.records import METRICS, MODEL, SUMMARY, Line
from fedtrue.runner.summary import flat, summarise
from fedtrue.runner.tensorboard import Events
from fedtrue.tasks.metric import Metric

PATIENCE = 10  # consecutive rounds in which no client is left, before a run is given up


@dataclass(frozen=True, repr=False)
class Result:
    """What training leaves behind."""

    params: Any  # NumPy arrays
    history: dict[str, np.ndarray]  # one entry a round
    evaluations: list[dict[str, Any]]  # {"round", "metrics": {split: {name: mean}}, "clients": {split: {name: spread}}}
    summary: dict[str, Any]  # as summary.json

    def __repr__(self) -> str:
        """What was reached; the weights would fill the screen."""
        finals = {key: value for key, value in flat(self.summary).items() if key.startswith("final.")}
        numbers = "".join(f", {key}={value:.6g}" for key, value in finals.items())
        return f"Result({self.summary['status']} after {self.summary['rounds']} rounds{numbers})"


class Journal:
    """One run's records; without a folder they are kept in memory only."""

    def __init__(
        self,
        folder: Path | None,
        clients: int,
        message: MessageBytes,
        tensorboard: bool = False,
        metric_kinds: Mapping[str, Metric] = MappingProxyType({}),  # as the task declares them
    ):
        self.folder, self.lines = folder, list[Line]()
        self._metric_kinds = metric_kinds
        self._message = message
        self._tensorboard = tensorboard
        self.done = 0  # rounds trained; a run that was given up has fewer lines
        self._seen = np.zeros(clients, bool)
        self._appender: records.Appender | None = None
        self._events: Events | None = None

    def restored(self, found: Checkpoint, like: State) -> State:
        """The run's state there; `like` has its shapes."""
        return checkpoint.restored(found, like)

    def open(self, found: Checkpoint | None) -> None:
        """From here on lines are written; those beyond the checkpoint will come again, and are cut off."""
        if self.folder is None:
            return
        if found:
            self.done, self._seen[found.clients] = found.round, True
        self._appender = records.Appender(self.folder / METRICS, self.done)
        self.lines = self._appender.lines
        self._events = Events(self.folder / "tensorboard", self.done) if self._tensorboard else None

    def record(self, info: RoundInfo, seconds: float, evaluated: Mapping[str, Evaluation]) -> Sequence[Line]:
        """The rounds of one dispatch, and what the model was worth after the last of them; nothing once given up."""
        self.done += len(info.clients)
        self._seen[info.cohort[info.cohort >= 0]] = True
        if self.given_up:
            return []
        lines = lines_of(info, len(self.lines), seconds, self._message)
        if evaluated:
            lines[-1]["evaluation"] = {split: found.metrics for split, found in evaluated.items()}
            lines[-1]["spread"] = {
                split: {name: found.quantiles(name) for name in found.metrics} for split, found in evaluated.items()
            }
        lines = _until_given_up(lines, self.skipped)
        if self._appender:
            self._appender.append(lines)
        else:
            self.lines += lines
        if self._events:
            self._events.write(lines)
        return lines

    @property
    def seen(self) -> np.ndarray:
        """Who has taken part, so whose memory has changed."""
        return np.flatnonzero(self._seen)

    @property
    def skipped(self) -> int:
        """How many rounds in a row, up to now, had no client left."""
        return _skipped(self.lines)

    @property
    def given_up(self) -> bool:
        return self.skipped >= PATIENCE

    def save(self, state: State) -> None:
        """A checkpoint, if there is a folder for it; of the clients' memory `state` has the rows of the `seen`."""
        if self.folder and self._appender:
            self._appender.sync()
            checkpoint.save(self.folder / "checkpoints", self.done, state, self.seen)

    def close(self, state: State) -> Result:
        """The run has ended: its summary and its final weights."""
        params = jax.tree.map(np.asarray, state.server.params)
        summary = summarise(self.lines, "diverged" if self.given_up else "finished", self._metric_kinds)
        if self.folder and self._appender:
            self._appender.close()
            write_atomically(self.folder / MODEL, safetensors.numpy.save(checkpoint.by_path(params)))
            write_atomically(self.folder / SUMMARY, records.as_json(summary, indent=1).encode())
        if self._events:
            self._events.close()
        return Result(params, records.columns(self.lines), _evaluations(self.lines), summary)


def newest_checkpoints(journals: Sequence[Journal], say: Callable[[str], None]) -> list[Checkpoint]:
    """Where these runs can go on together: one each, of the same round, with the lines up to it; [] at the start."""
    folders = [journal.folder for journal in journals if journal.folder]
    recorded = [_recorded(folder / METRICS) for folder in folders]
    return checkpoint.newest_of_all([folder / "checkpoints" for folder in folders], say, min(recorded, default=0))


def _recorded(path: Path) -> float:
    """How many rounds the lines account for: for all to come, if they say that the run was given up."""
    lines = records.read_lines(path)
    return math.inf if _skipped(lines) >= PATIENCE else len(lines)


def _skipped(lines: Sequence[Line]) -> int:
    return next((i for i, line in enumerate(reversed(lines)) if line["clients"]), len(lines))


def _until_given_up(lines: list[Line], skipped: int) -> list[Line]:
    """Up to the round that exhausts the patience, so that the records do not depend on where dispatches end."""
    for place, line in enumerate(lines, 1):
        skipped = 0 if line["clients"] else skipped + 1
        if skipped == PATIENCE:
            return lines[:place]
    return lines


def lines_of(info: RoundInfo, first: int, seconds: float, message: MessageBytes) -> list[Line]:
    """One line per round; a round's seconds are its part of the dispatch's."""
    rounds = len(info.cohort)
    columns = {
        "round": np.arange(first, first + rounds),
        **means(info.metric_sums),
        "clients": info.clients,
        "dropped": info.dropped,
        "cohort": info.cohort,
        "steps": info.steps,
        "pseudo_gradient_norm": info.pseudo_gradient_norm,
        "idle_steps": info.idle_steps,
        "bytes_up": info.participants.astype(np.int64) @ np.asarray(message.up),
        "bytes_down": info.participants.astype(np.int64) @ np.asarray(message.down),
        "seconds": np.full(rounds, seconds / rounds),
    }
    rows = zip(*(values.tolist() for values in columns.values()))
    lines = [dict(zip(columns, row)) for row in rows]
    for line in lines:
        line["cohort"] = [client for client in line["cohort"] if client >= 0]
    return lines


def _evaluations(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [
        {"round": line["round"] + 1, "metrics": line["evaluation"], "clients": line["spread"]}
        for line in lines
        if "evaluation" in line
    ]
