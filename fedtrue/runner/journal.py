"""What one run leaves behind: its lines and, with a folder, its files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from fedtrue.engine.capacity import MessageBytes
from fedtrue.engine.program import RoundInfo, State
from fedtrue.files import write_atomically
from fedtrue.runner import checkpoint, records
from fedtrue.runner.checkpoint import Checkpoint
from fedtrue.runner.evaluation import Evaluation, means
from fedtrue.runner.records import METRICS, MODEL, SUMMARY, Line
from fedtrue.runner.tensorboard import Events

PATIENCE = 10  # consecutive rounds in which no client is left, before a run is given up


@dataclass(frozen=True)
class Result:
    """What training leaves behind."""

    params: Any  # NumPy arrays
    history: dict[str, np.ndarray]  # one entry a round
    evaluations: list[dict[str, Any]]  # {"round", "metrics": {split: {name: mean}}, "clients": {split: {name: spread}}}
    summary: dict[str, Any]  # as summary.json


class Journal:
    """One run's records; without a folder they are kept in memory only."""

    def __init__(self, folder: Path | None, clients: int, tensorboard: bool = False):
        self.folder, self.lines = folder, list[Line]()
        self._tensorboard = tensorboard
        self._seen = np.zeros(clients, bool)  # who has taken part, so whose memory has changed
        self._appender: records.Appender | None = None
        self._events: Events | None = None

    def newest_checkpoint(self, say: Callable[[str], None]) -> Checkpoint | None:
        """Where a run in this folder can go on."""
        return checkpoint.newest(self.folder / "checkpoints", say) if self.folder else None

    def open(self, found: Checkpoint | None) -> None:
        """From here on lines are written; those beyond the checkpoint will come again, and are cut off."""
        if self.folder is None:
            return
        done = found.round if found else 0
        self._appender = records.Appender(self.folder / METRICS, done)
        self.lines = self._appender.lines
        self._seen[[client for line in self.lines for client in line["cohort"]]] = True
        self._events = Events(self.folder / "tensorboard", done) if self._tensorboard else None

    def record(
        self, info: RoundInfo, seconds: float, message: MessageBytes, evaluated: Mapping[str, Evaluation]
    ) -> None:
        """The rounds of one dispatch, and what the model was worth after the last of them."""
        lines = lines_of(info, len(self.lines), seconds, message)
        if evaluated:
            lines[-1]["evaluation"] = {split: found.metrics for split, found in evaluated.items()}
            lines[-1]["spread"] = {
                split: {name: found.quantiles(name) for name in found.metrics} for split, found in evaluated.items()
            }
        self._seen[info.cohort] = True
        if self._appender:
            self._appender.append(lines)
        else:
            self.lines += lines
        if self._events:
            self._events.write(lines)

    @property
    def skipped(self) -> int:
        """How many rounds in a row, up to now, had no client left."""
        return next((i for i, line in enumerate(reversed(self.lines)) if line["clients"]), len(self.lines))

    @property
    def given_up(self) -> bool:
        return self.skipped >= PATIENCE

    def save(self, state: State) -> None:
        """A checkpoint, if there is a folder for it and sense in going on."""
        if self.folder and not self.given_up:
            checkpoint.save(self.folder / "checkpoints", len(self.lines), state, np.flatnonzero(self._seen))

    def close(self, state: State) -> Result:
        """The run has ended: its summary and its final weights."""
        params = jax.tree.map(np.asarray, state.server.params)
        summary = records.summarise(self.lines, "diverged" if self.given_up else "finished")
        if self.folder and self._appender:
            self._appender.close()
            write_atomically(self.folder / MODEL, safetensors.numpy.save(checkpoint.by_path(params)))
            write_atomically(self.folder / SUMMARY, records.as_json(summary, indent=1).encode())
        if self._events:
            self._events.close()
        return Result(params, records.columns(self.lines), _evaluations(self.lines), summary)


def lines_of(info: RoundInfo, first: int, seconds: float, message: MessageBytes) -> list[Line]:
    """One line a round; a round's seconds are its part of the dispatch's."""
    rounds, cohort = info.cohort.shape
    columns = {
        "round": np.arange(first, first + rounds),
        **means(info.sums),
        "clients": info.clients,
        "dropped": info.dropped,
        "cohort": info.cohort,
        "steps": info.steps.sum(axis=1),
        "pseudo_gradient_norm": info.pseudo_gradient_norm,
        "idle_steps": info.idle_steps,
        "bytes_up": np.full(rounds, cohort * message.up),
        "bytes_down": np.full(rounds, cohort * message.down),
        "seconds": np.full(rounds, seconds / rounds),
    }
    return [dict(zip(columns, row)) for row in zip(*(values.tolist() for values in columns.values()))]


def _evaluations(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [
        {"round": line["round"] + 1, "metrics": line["evaluation"], "clients": line["spread"]}
        for line in lines
        if "evaluation" in line
    ]
