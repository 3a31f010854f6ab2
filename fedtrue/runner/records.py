"""The records of a run: one JSON line per round, appended and never changed, and a summary at the end.

    {"round": 0, "loss": 4.4, "clients": 10, "dropped": 0, "cohort": […], "steps": 48, "pseudo_gradient_norm": 0.9,
     "idle_steps": 0, "bytes_up": 65561840, "bytes_down": 32780920, "seconds": 0.1}

The line of a round after which the model was evaluated also has `evaluation` {split: {metric: mean}} and `spread`
{split: {metric: how it spreads over the clients}}. A number that is not finite is written as null.
"""

import json
import lzma
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.files import write_atomically
from fedtrue.runner import toml

CONFIG, METRICS, SUMMARY, MODEL, SWEEP = (
    "config.toml",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "sweep.toml",
)
PACKED = ".xz"  # suffix of lines that `fedtrue pack` compressed
SHARES = ("accuracy", "recall", "precision")
LAST = 100  # rounds the paper's numbers are averaged over
ADDED_UP = ("steps", "idle_steps", "dropped", "bytes_up", "bytes_down", "seconds")
NOT_METRICS = ("round", "clients", "cohort", "pseudo_gradient_norm", *ADDED_UP, "evaluation", "spread")

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    path: Path
    name: str  # its label, else its folder's name
    config: dict[str, Any]
    origin: dict[str, Any]  # version, commit, devices, command …
    rounds: dict[str, np.ndarray]  # one entry per round
    evaluations: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]  # split → metric → (rounds, values)
    summary: dict[str, Any] | None  # None: it has not ended


class Appender:
    """`metrics.jsonl`, open for more; lines of `rounds` rounds are kept, what is beyond them is cut off."""

    def __init__(self, path: Path, rounds: int):
        lines = [line for line in read_lines(path) if line["round"] < rounds]
        text = "".join(map(as_json, lines)).encode()
        if not path.exists() or path.read_bytes() != text:
            write_atomically(path, text)
        self.lines = lines
        self._file = path.open("ab", buffering=0)

    def append(self, lines: Sequence[Line]) -> None:
        """All of them in one write, so that a crash tears at most the last; on a full disk none of them."""
        size, rest = os.fstat(self._file.fileno()).st_size, "".join(map(as_json, lines)).encode()
        try:
            while rest:  # a disk that is filling up takes a part and says nothing
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(size)
            error.filename = error.filename or self._file.name
            raise
        self.lines += lines

    def sync(self) -> None:
        """Waits until the lines are on the disk: a checkpoint without its lines is of no use."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()


def as_json(table: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(_finite(table), indent=indent, separators=None if indent else (",", ":")) + "\n"


def _finite(value: Any) -> Any:
    """NaN and infinities as None, which JSON can say."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _with_nan(value: Any) -> Any:
    """The way back: in memory what is not finite is NaN."""
    if isinstance(value, dict):
        return {key: _with_nan(entry) for key, entry in value.items()}
    return math.nan if value is None else value


def read_lines(path: Path) -> list[Line]:
    """The lines of a `metrics.jsonl` (or .xz); a torn last one is left out."""
    packed = path.with_name(path.name + PACKED)
    if not path.exists() and not packed.exists():
        return []
    text = path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
    return list(_parsed(text.splitlines(), path))


def _parsed(lines: list[bytes], path: Path) -> Iterable[Line]:
    for number, line in enumerate(lines, 1):
        try:
            yield _with_nan(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise ValueError(
                    f"{path}, line {number} is not JSON: the file was changed after it was written"
                ) from None


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders among `paths` and below them, in order, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        below = [path] if (path / CONFIG).exists() else sorted(config.parent for config in path.glob(f"**/{CONFIG}"))
        if not below:
            raise ValueError(f"{path} is not a run folder and holds none: fedtrue run TASK --out {path} makes one")
        found.update(dict.fromkeys(below))
    return list(found)


def read_run(path: Path) -> Run:
    """Settings, records and summary of one run."""
    config = toml.read(path / CONFIG, "a run folder")
    origin = config.pop("origin", {})
    lines = read_lines(path / METRICS)
    return Run(
        path, config.get("label") or path.name, config, origin, columns(lines), evaluations(lines), read_summary(path)
    )


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, else None."""
    try:
        return json.loads((path / SUMMARY).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ValueError(f"{path / SUMMARY} is not JSON: the file was changed after it was written") from None


def columns(lines: Sequence[Line]) -> dict[str, np.ndarray]:
    """One array per entry, one row per round. Evaluations are left out: not every round has one."""
    names = [name for name in (lines[0] if lines else ()) if name not in ("evaluation", "spread")]
    return {name: np.asarray([line[name] for line in lines]) for name in names}


def evaluations(lines: Iterable[Line]) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """split → metric → (rounds, values)."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for line in lines:
        for split, metrics in line.get("evaluation", {}).items():
            for name, value in metrics.items():
                found.setdefault(split, {}).setdefault(name, []).append((line["round"], value))
    as_arrays = lambda pairs: (np.asarray([r for r, _ in pairs]), np.asarray([value for _, value in pairs]))
    return {split: {name: as_arrays(pairs) for name, pairs in metrics.items()} for split, metrics in found.items()}


def summarise(lines: Sequence[Line], status: str) -> dict[str, Any]:
    """Final and best values, means over the last 100 rounds (by which the paper selects), totals."""
    rounds = columns(lines)
    trained = {name: (rounds["round"], values) for name, values in rounds.items() if name not in NOT_METRICS}
    splits = {"train": trained, **evaluations(lines)} if lines else {}
    over = lambda reduce: {
        split: {name: reduce(name, *series) for name, series in metrics.items()} for split, metrics in splits.items()
    }
    totals = {name: rounds[name].sum().item() for name in ADDED_UP if name in rounds}
    skipped = int((rounds["clients"] == 0).sum()) if lines else 0
    return {
        "status": status,
        "rounds": len(lines),
        "final": over(lambda name, r, values: float(values[-1])),
        "best": over(_best),
        f"last_{LAST}": over(lambda name, r, values: _mean(values[r >= len(lines) - LAST])),
        "totals": {**totals, "skipped_rounds": skipped},
    }


def is_share(metric: str) -> bool:
    """A part of 1, shown as percent."""
    return any(share in metric for share in SHARES)


def higher_is_better(metric: str) -> bool:
    """Of shares; of losses and distances lower is."""
    return is_share(metric)


def _best(name: str, rounds: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    sign = -1 if higher_is_better(name) else 1
    place = int(np.argmin(np.where(np.isfinite(values), sign * values, math.inf)))
    return {"value": float(values[place]), "round": int(rounds[place])}


def _mean(values: np.ndarray) -> float:
    """Of the finite ones: a skipped round has no loss."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan
