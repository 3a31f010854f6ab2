"""The records of one run: its lines and, with a folder, its files."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
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
from fedtrue.runner.client_metrics import CLIENT_METRICS, ClientMetrics, as_csv, client_metrics, read_client_metrics
from fedtrue.runner.evaluation import Evaluation, means
from fedtrue.runner.folder import settings_hash
from fedtrue.runner.records import CONFIG, METRICS, MODEL, SUMMARY, Line
from fedtrue.runner.summary import flat, summarise
from fedtrue.spec import Spec
from fedtrue.tasks.metric import Metric
from fedtrue.types import Params, PyTree

PATIENCE = 10  # consecutive rounds without a finite client update, after which a run counts as diverged


@dataclass(frozen=True, repr=False)
class Result:
    """The result of training."""

    params: Any  # NumPy arrays
    history: dict[str, np.ndarray]  # one entry per round
    evaluations: list[dict[str, Any]]  # {"round", "metrics": {split: {name: mean}}, "clients": {split: {name: spread}}}
    summary: dict[str, Any]  # as in summary.json
    clients: ClientMetrics = field(
        default_factory=dict
    )  # at the end: {split: {"client": names, metric: one per client}}
    weights: Any = None  # all of the model, as in model.safetensors: `params`, frozen ones too, adapters merged

    def __repr__(self) -> str:
        """Status, rounds, the first exploded round and final metrics, without the weights."""
        finals = {key: value for key, value in flat(self.summary).items() if key.startswith("final.")}
        numbers = "".join(f", {key}={value:.6g}" for key, value in finals.items())
        exploded = f", round {self.summary['exploded']['first']} exploded" if "exploded" in self.summary else ""
        return f"Result({self.summary['status']} after {self.summary['rounds']} rounds{exploded}{numbers})"


class Journal:
    """The records of one run; without a folder they exist in memory only."""

    def __init__(
        self,
        folder: Path | None,
        clients: int,
        message: MessageBytes,
        metric_kinds: Mapping[str, Metric] = MappingProxyType({}),  # as the task declares them
        method: Spec | None = None,  # the method's spec
        model_weights: Callable[[Params], PyTree] | None = None,  # of the task: trained weights → all of the model
        spent: Callable[[int], float] | None = None,  # rounds → ε of the method's privacy; None: it has none
    ):
        self.folder, self.lines = folder, list[Line]()
        self._metric_kinds, self.method, self._model_weights = metric_kinds, method, model_weights
        self._client_metrics: ClientMetrics = {}  # of the last evaluation
        self._message, self._spent = message, spent
        self.stopped: str | None = None  # why a callback stopped the run
        self.done = 0  # rounds trained; a diverged run has fewer lines
        self._taken_part = np.zeros(clients, bool)
        self._appender: records.Appender | None = None
        self._settings: str | None = None  # hash of those in the folder

    def restored(self, saved: Checkpoint, like: State) -> State:
        """The run's state in a checkpoint; `like` has the same shapes."""
        return checkpoint.restored(saved, like)

    def open(self, saved: Checkpoint | None) -> None:
        """Opens the files. Lines after the checkpoint are removed, as their rounds are trained again."""
        if self.folder is None:
            return
        if saved:
            self.done, self._taken_part[saved.clients] = saved.round, True
        self._settings = settings_hash(self.folder)
        self._appender = records.Appender(self.folder / METRICS, self.done)
        self.lines = self._appender.lines
        (self.folder / SUMMARY).unlink(missing_ok=True)  # of a run that had ended and goes on

    def record(
        self,
        info: RoundInfo,
        seconds: float,
        evaluated: Mapping[str, Evaluation],
        measured: Mapping[str, Any] = MappingProxyType({}),
    ) -> Sequence[Line]:
        """Records the rounds of one dispatch, and the evaluation after the last of them; nothing once ended.

        `measured`: of the last round, in place of what its line would have, or besides.
        """
        if self.stopped is not None:
            return []
        self.done += len(info.clients)
        self._taken_part[info.cohort[info.cohort >= 0]] = True
        if self.diverged:
            return []
        lines = lines_of(info, len(self.lines), seconds, self._message, self._spent)
        lines[-1] |= measured
        if evaluated:
            self._client_metrics = client_metrics(evaluated)
            lines[-1]["evaluation"] = {split: evaluation.metrics for split, evaluation in evaluated.items()}
            lines[-1]["spread"] = {
                split: {name: evaluation.quantiles(name) for name in evaluation.metrics}
                for split, evaluation in evaluated.items()
            }
        lines = _until_diverged(lines, self.skipped)
        if self._appender:
            self._appender.append(lines)
        else:
            self.lines += lines
        return lines

    @property
    def seen(self) -> np.ndarray:
        """The clients that have taken part: only their memory has changed."""
        return np.flatnonzero(self._taken_part)

    @property
    def skipped(self) -> int:
        """How many of the last rounds, in a row, had only clients whose update was not finite."""
        return _skipped_at_end(self.lines)

    @property
    def diverged(self) -> bool:
        return self.skipped >= PATIENCE

    @property
    def ended(self) -> bool:
        return self.diverged or self.stopped is not None

    def save(self, state: State) -> None:
        """Writes a checkpoint, if there is a folder; the memory in `state` has one row per client in `seen`."""
        if self.folder and self._appender:
            self._appender.sync()
            checkpoint.save(self.folder / "checkpoints", self.done, state, self.seen, self._settings)

    def close(self, state: State) -> Result:
        """Ends the run: writes and returns its summary and final weights."""
        params = jax.tree.map(np.asarray, state.server.params)
        status = "stopped" if self.stopped is not None else "diverged" if self.diverged else "finished"
        summary = summarise(self.lines, status, self._metric_kinds)
        if self.stopped is not None:
            summary["stopped"] = self.stopped
        summary["method"] = self.method
        if self._spent:
            summary["epsilon"] = self._spent(self.done)
        weights = jax.tree.map(np.asarray, self._model_weights(params)) if self._model_weights else params
        if self.folder and self._appender:
            self._appender.close()
            self._close_client_metrics(self.folder / CLIENT_METRICS)
            write_atomically(self.folder / MODEL, safetensors.numpy.save(checkpoint.by_path(weights)))
            write_atomically(self.folder / SUMMARY, records.as_json(summary, indent=1).encode())
        history, evaluations = records.columns(self.lines), _evaluations(self.lines)
        return Result(params, history, evaluations, summary, self._client_metrics, weights)

    def _close_client_metrics(self, path: Path) -> None:
        """Writes those of the last evaluation; a run that had ended before is not evaluated again, and has the file."""
        if self._client_metrics:
            write_atomically(path, as_csv(self._client_metrics))
        else:
            self._client_metrics = read_client_metrics(path)


def newest_checkpoints(journals: Sequence[Journal], log: Callable[[str], None]) -> list[Checkpoint]:
    """From which these runs can resume together: one per run, of the same round and with lines up to it; [] if none."""
    folders = [journal.folder for journal in journals if journal.folder]
    recorded = [_recorded_rounds(folder / METRICS) for folder in folders]
    found = checkpoint.newest_of_all([folder / "checkpoints" for folder in folders], log, min(recorded, default=0))
    for folder, saved in zip(folders, found):
        if saved.settings not in (None, settings_hash(folder)):
            raise ValueError(
                f"{folder / CONFIG} was changed after round {saved.round} was trained: undo the change, or train "
                f"another run with `fedtrue run {folder / CONFIG} --out DIR`"
            )
    return found


def _recorded_rounds(path: Path) -> float:
    """How many rounds the lines account for; all future ones, if the run has diverged."""
    lines = records.read_lines(path)
    return math.inf if _skipped_at_end(lines) >= PATIENCE else len(lines)


def _skipped_at_end(lines: Sequence[Line]) -> int:
    """A round in which nobody replied is neither skipped nor the end of a sequence of skipped rounds."""
    since_last_client = takewhile(lambda line: not line["clients"], reversed(lines))
    return sum(is_skipped(line) for line in since_last_client)


def is_skipped(line: Line) -> bool:
    """Whether every client that replied had an update that was not finite; those that chose not to upload had one."""
    return not line["clients"] and line["dropped"] > 0 and line["dropped"] == line.get("trained", line["dropped"])


def _until_diverged(lines: list[Line], skipped: int) -> list[Line]:
    """The lines up to the round that makes the run diverged, so that records do not depend on where dispatches end."""
    for count, line in enumerate(lines, 1):
        skipped = 0 if line["clients"] else skipped + is_skipped(line)
        if skipped == PATIENCE:
            return lines[:count]
    return lines


def lines_of(
    info: RoundInfo, first: int, seconds: float, message: MessageBytes, spent: Callable[[int], float] | None = None
) -> list[Line]:
    """One line per round; the seconds of a dispatch are divided equally among its rounds."""
    rounds = len(info.cohort)
    missing = np.zeros_like(info.participants) if info.missing is None else info.missing
    replied = (info.participants - missing).astype(np.int64)
    uploads = replied if info.uploads is None else info.uploads.astype(np.int64)
    columns = {
        "round": np.arange(first, first + rounds),
        **means(info.metric_sums),
        "clients": info.clients,
        "dropped": info.dropped,
        **({} if info.missing is None else {"missing": missing[:, -1]}),
        **({} if info.left_out is None else {"left_out": info.left_out}),
        **({} if info.uploads is None else {"trained": replied[:, -1]}),
        "cohort": info.cohort,
        "steps": info.steps,
        "pseudo_gradient_norm": info.pseudo_gradient_norm,
        "idle_steps": info.idle_steps,
        **({} if spent is None else {"epsilon": np.asarray([spent(first + r + 1) for r in range(rounds)])}),
        "bytes_up": uploads @ np.asarray(message.up) + replied @ np.asarray(message.reports),
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
