"""The records of a run: one JSON line per round, appended and never changed, and a summary at the end.

    {"round": 0, "loss": 4.4, "clients": 10, "dropped": 0, "cohort": […], "steps": 48, "pseudo_gradient_norm": 0.9,
     "idle_steps": 0, "bytes_up": 65561840, "bytes_down": 32780920, "seconds": 0.1}

The line of a round after which the model was evaluated also has `evaluation` {split: {metric: mean}} and `spread`
{split: {metric: its distribution over the clients}}. A number that is not finite is written as null.
"""

import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.files import write_atomically
from fedtrue.names import suggestion
from fedtrue.runner import archive, toml

CONFIG, METRICS, SUMMARY, MODEL, SWEEP = (
    "config.toml",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "sweep.toml",
)
TUNING = "tuning"  # the first sweep of a comparison: TUNING.toml, and a folder of this name
LAST = 100  # rounds that the paper averages over
ADDED_UP = ("steps", "idle_steps", "dropped", "missing", "refused", "left_out", "bytes_up", "bytes_down", "seconds")
NOT_METRICS = (
    "round",
    "clients",
    "trained",
    "cohort",
    "pseudo_gradient_norm",
    "epsilon",
    *ADDED_UP,
    "evaluation",
    "spread",
)

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run, read from its folder or from an archive."""

    path: Path  # its folder, or ARCHIVE/NAME
    name: str  # its label, else its folder's name
    config: dict[str, Any]
    origin: dict[str, Any]  # version, commit, devices, command …
    rounds: dict[str, np.ndarray]  # one entry per round; in some archives, one per evaluation
    evaluations: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]  # split → metric → (rounds, values)
    summary: dict[str, Any] | None  # None if the run has not ended
    config_text: str  # config.toml as written
    config_file: Path  # the file that holds it: config.toml, or the archive
    from_sweep: bool  # whether it is a cell of a sweep

    @property
    def rounds_done(self) -> int:
        return int(self.rounds["round"][-1]) + 1 if "round" in self.rounds else 0


class Appender:
    """`metrics.jsonl`, open for appending; the lines of the first `rounds` rounds are kept, later ones are removed."""

    def __init__(self, path: Path, rounds: int):
        lines = [line for line in read_lines(path) if line["round"] < rounds]
        text = "".join(map(as_json, lines)).encode()
        if not path.exists() or path.read_bytes() != text:
            write_atomically(path, text)
        self.lines = lines
        self._file = path.open("ab", buffering=0)

    def append(self, lines: Sequence[Line]) -> None:
        """In one write, so that a crash damages at most the last line; on a full disk no line is appended."""
        size, remaining = os.fstat(self._file.fileno()).st_size, "".join(map(as_json, lines)).encode()
        try:
            while remaining:  # on a disk that is almost full, `write` writes a part and raises no error
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(size)
            error.filename = error.filename or self._file.name
            raise
        self.lines += lines

    def sync(self) -> None:
        """Waits until the lines are on the disk: a checkpoint without its lines cannot be used."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()


def as_json(table: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(_finite(table), indent=indent, separators=None if indent else (",", ":")) + "\n"


def _finite(value: Any) -> Any:
    """NaN and infinities as None, as JSON does not have them."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _with_nan(value: Any) -> Any:
    """The inverse of `_finite`, up to infinities: None becomes NaN."""
    if isinstance(value, dict):
        return {key: _with_nan(entry) for key, entry in value.items()}
    return math.nan if value is None else value


def read_lines(path: Path) -> list[Line]:
    """The lines of a `metrics.jsonl`; an incomplete last line is left out."""
    return list(_parsed(path.read_bytes().splitlines(), path)) if path.exists() else []


def _parsed(lines: list[bytes], path: Path) -> Iterable[Line]:
    try:
        together = json.loads(b"[" + b",".join(lines) + b"]")  # faster than one call per line
    except ValueError:
        together = []
    if len(together) == len(lines):
        for line, values in zip(lines, together):
            yield _with_nan(values) if b"null" in line else values
    else:
        yield from _parsed_one_by_one(lines, path)


def _parsed_one_by_one(lines: list[bytes], path: Path) -> Iterable[Line]:
    for number, line in enumerate(lines, 1):
        try:
            yield _with_nan(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise ValueError(
                    f"{path}, line {number} is not JSON: the file was changed after it was written"
                ) from None


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The runs at `paths`, in order, each once: its folder, or ARCHIVE/NAME for a run in an archive.

    A path is one of these, an archive, or a folder that contains run folders or archives at any depth.
    """
    runs: dict[Path, None] = {}
    for path in paths:
        runs.update(dict.fromkeys(_runs_at(path)))
    return list(runs)


def _runs_at(path: Path) -> list[Path]:
    if (path / CONFIG).exists():
        return [path]
    if path.is_file() or (path.name.endswith(archive.SUFFIX) and not path.is_dir()):
        return [path / name for name in archive.read(path).runs]
    if is_archived(path):
        archived_run(path)  # refuses a name that is not in the archive
        return [path]
    return _runs_below(path)


def _runs_below(folder: Path) -> list[Path]:
    """Sorted as if every archive were the folder that it was packed from."""
    members = [config.parent for config in folder.glob(f"**/{CONFIG}")]
    members += [file for file in folder.glob(f"**/*{archive.SUFFIX}") if file.is_file()]
    if not members:
        raise ValueError(f"{folder} is not a run folder and holds none: fedtrue run TASK --out {folder} makes one")
    in_order = sorted(members, key=lambda path: path.with_name(path.name.removesuffix(archive.SUFFIX)))
    return [run for path in in_order for run in _runs_at(path)]


def is_archived(run: Path) -> bool:
    """Whether `run` is ARCHIVE/NAME and not a folder."""
    return run.parent.is_file()


def archived_run(run: Path) -> archive.ArchivedRun:
    """The run ARCHIVE/NAME, from its archive."""
    runs = archive.read(run.parent).runs
    if run.name not in runs:
        raise ValueError(f"{run.parent} holds no run {run.name!r}{suggestion(run.name, runs)}")
    return runs[run.name]


def run_lines(run: Path) -> list[Line]:
    """The lines of a run, from its folder or from an archive."""
    if is_archived(run):
        return list(_parsed(archived_run(run).lines.splitlines(), run))
    return read_lines(run / METRICS)


def read_run(path: Path) -> Run:
    """Settings, records and summary of one run, from its folder or from an archive."""
    config, text = _config_and_text(path)
    origin = config.pop("origin", {})
    lines, in_archive = run_lines(path), is_archived(path)
    return Run(
        path,
        config.get("label") or path.name,
        config,
        origin,
        columns(lines),
        evaluations(lines),
        archived_run(path).summary if in_archive else read_summary(path),
        text,
        path.parent if in_archive else path / CONFIG,
        sweep_text(path) is not None,
    )


def _config_and_text(run: Path) -> tuple[dict[str, Any], str]:
    """The settings, as a table and as the text of the file."""
    if not is_archived(run):
        return read_config(run), (run / CONFIG).read_text()
    text = archived_run(run).config
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{run}: its config is not TOML: {error}") from None


def sweep_text(run: Path) -> str | None:
    """The sweep.toml of the sweep that a run is a cell of; None for a single run."""
    if is_archived(run):
        return archive.read(run.parent).sweep
    file = run.absolute().parent / SWEEP
    return file.read_text() if file.exists() else None


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a run folder, and under `origin` how the run was started."""
    return toml.read(path / CONFIG, "a run folder")


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, else None."""
    try:
        return json.loads((path / SUMMARY).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ValueError(f"{path / SUMMARY} is not JSON: the file was changed after it was written") from None


def columns(lines: Sequence[Line]) -> dict[str, np.ndarray]:
    """One array per key, one row per round. Evaluations are left out, as not every round has one.

    Cohorts that are smaller than the largest one are filled up with −1.
    """
    names = [name for name in (lines[0] if lines else ()) if name not in ("evaluation", "spread")]
    return {name: _column([line[name] for line in lines]) for name in names}


def _column(values: Sequence[Any]) -> np.ndarray:
    if not isinstance(values[0], list):
        return np.asarray(values)
    longest = max(map(len, values))
    return np.asarray([[*row, *[-1] * (longest - len(row))] for row in values], int)


def evaluations(lines: Iterable[Line]) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """split → metric → (rounds, values)."""
    series: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for line in lines:
        for split, metrics in line.get("evaluation", {}).items():
            for name, value in metrics.items():
                series.setdefault(split, {}).setdefault(name, []).append((line["round"], value))
    as_arrays = lambda pairs: (np.asarray([r for r, _ in pairs]), np.asarray([value for _, value in pairs]))
    return {split: {name: as_arrays(pairs) for name, pairs in metrics.items()} for split, metrics in series.items()}
