"""Packs run folders into archives small enough for a repository, without weights, checkpoints and cohorts."""

import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedtrue.files import write_atomically
from fedtrue.runner import archive
from fedtrue.runner.archive import Archive, ArchivedRun
from fedtrue.runner.records import (
    ADDED_UP,
    NOT_METRICS,
    SWEEP,
    Line,
    Run,
    as_json,
    find_runs,
    is_archived,
    read_run,
    run_lines,
    sweep_text,
)
from fedtrue.runner.toml import to_toml
from fedtrue.tasks.own_file import short_name

OUT = ("-o", "--out")
OMITTED_KEYS = ("cohort", "spread", "idle_steps", "steps")
NOT_AVERAGED = frozenset(NOT_METRICS) - {"clients", "pseudo_gradient_norm"}
EVALUATION_DIGITS, TRAINING_DIGITS = 6, 4  # significant digits; further digits of training metrics are noise
COMMITTED, UNCOMMITTED, UNKNOWN = "committed", "uncommitted", "unknown"


@dataclass(frozen=True)
class Packed:
    """A written archive."""

    file: Path
    runs: int
    not_committed: int  # how many of these runs were trained from uncommitted or unknown code
    bytes: int


def pack(
    paths: Sequence[Path],
    out: Path,
    allow_uncommitted: bool = False,
    only_ended: bool = False,
    only_evaluations: bool = False,
) -> list[Packed]:
    """Writes one archive per sweep and per single run: `out` itself, or NAME.runs.xz in the folder `out`.

    `only_ended` leaves out runs that have not ended; otherwise they are refused. `only_evaluations` keeps one line per
    evaluation, for about a tenth of the size. Everything is checked before anything is written. The same records give
    the same bytes.
    """
    targets = _targets(find_runs(paths), out)
    runs = {target: [read_run(path) for path in members] for target, members in targets.items()}
    if only_ended:
        ended = {target: [run for run in members if run.summary is not None] for target, members in runs.items()}
        runs = {target: members for target, members in ended.items() if members}
    _check_ended([run for members in runs.values() for run in members])
    if not allow_uncommitted:
        _check_committed([run for members in runs.values() for run in members])
    archives = {target: _archive_of(members, only_evaluations) for target, members in runs.items()}
    for target, made in archives.items():
        _check_loses_nothing(target, made)
    return [_write(target, made) for target, made in archives.items()]


def tree_of(origin: Mapping[str, Any]) -> str:
    """Whether the code that trained a run was committed, according to the commit in its origin."""
    commit = origin.get("commit")
    if not commit:
        return UNKNOWN
    return UNCOMMITTED if commit.endswith("+") else COMMITTED


def _targets(runs: Sequence[Path], out: Path) -> dict[Path, list[Path]]:
    """The archives to write, each with its runs."""
    by_name: dict[str, list[Path]] = {}
    for run in runs:
        by_name.setdefault(_archive_name(run), []).append(run)
    if out.is_dir() or not (out.exists() or out.suffix == ".xz"):
        return {out / (name + archive.SUFFIX): members for name, members in by_name.items()}
    if not out.name.endswith(archive.SUFFIX):
        raise ValueError(f"{out} is not the name of an archive: give a folder, or a file NAME{archive.SUFFIX}")
    if len(by_name) > 1:
        raise ValueError(f"{out} takes the runs of one sweep, these are of {', '.join(sorted(by_name))}: give a folder")
    return {out: list(runs)}


def _archive_name(run: Path) -> str:
    """The sweep's name, or that of a single run."""
    if is_archived(run):
        return run.parent.name.removesuffix(archive.SUFFIX)
    folder = run.absolute()
    return folder.parent.name if (folder.parent / SWEEP).exists() else folder.name


def _check_ended(runs: Sequence[Run]) -> None:
    for run in runs:
        if run.summary is None:
            raise ValueError(f"{run.path} has not ended: `fedtrue resume {run.path}` first")


def _check_committed(runs: Sequence[Run]) -> None:
    """A result can be reproduced only if its code can be checked out again."""
    not_committed = [run for run in runs if tree_of(run.origin) != COMMITTED]
    if not not_committed:
        return
    commit = not_committed[0].origin.get("commit")
    why = f"a tree with uncommitted changes (commit {commit[:7]}+)" if commit else "an unknown commit"
    others = f" (and {len(not_committed) - 1} more)" if len(not_committed) > 1 else ""
    raise ValueError(
        f"{not_committed[0].path}{others} was trained from {why}: "
        "train it again from a clean checkout, or mark it with --allow-uncommitted"
    )


def _archive_of(runs: Sequence[Run], only_evaluations: bool) -> Archive:
    """The runs of one sweep, or one run; with the first run's sweep.toml, since comments may have changed since."""
    name, sweep = _archive_name(runs[0].path), sweep_text(runs[0].path)
    settings = _sweep_settings(sweep)
    packed: dict[str, ArchivedRun] = {}
    for run in runs:
        if _sweep_settings(sweep_text(run.path)) != settings:
            raise ValueError(
                f"{runs[0].path} and {run.path} are cells of two different sweeps called {name}: "
                "pack them into different folders"
            )
        archived = _packed_run(run, only_evaluations)
        if archived.name in packed:
            raise ValueError(f"two runs are called {name}/{archived.name}, one of them is {run.path}: give only one")
        packed[archived.name] = archived
    return Archive(sweep, packed)


def _sweep_settings(sweep: str | None) -> dict[str, Any] | None:
    return None if sweep is None else tomllib.loads(sweep)


def _packed_run(run: Run, only_evaluations: bool) -> ArchivedRun:
    name = run.path.name if is_archived(run.path) else run.path.absolute().name
    lines = run_lines(run.path)
    kept = _merged_between_evaluations(lines) if only_evaluations else lines
    text = "".join(as_json(_short(line)) for line in kept).encode()
    return ArchivedRun(name, _without_folders(run.config_text), run.summary or {}, tree_of(run.origin), text)


def _merged_between_evaluations(lines: Sequence[Line]) -> list[Line]:
    """One line per evaluation, for the rounds since the evaluation before; rounds after the last one are one more."""
    ends = [index for index, line in enumerate(lines) if "evaluation" in line or index == len(lines) - 1]
    starts = [0, *(end + 1 for end in ends)]
    return [_merged(lines[start : end + 1]) for start, end in zip(starts, ends)]


def _merged(lines: Sequence[Line]) -> Line:
    """The last of these lines, with sums of what is added up over rounds, and means of metrics."""

    def merged(name: str) -> Any:
        values = [line[name] for line in lines if name in line]
        if name in ADDED_UP:
            return sum(values)
        finite = [value for value in values if name not in NOT_AVERAGED and math.isfinite(value)]
        return fmean(finite) if finite else values[-1]

    return {name: merged(name) for name in lines[-1]}


def _without_folders(config: str) -> str:
    """The settings without folders of this machine: of a user's own task file, and in the command."""
    config = re.sub(
        r'^task = "(.+)"$', lambda line: f'task = "{short_name(line[1])}"', config, count=1, flags=re.MULTILINE
    )
    return re.sub(
        r"^command = .+\n", lambda line: to_toml(_short_command(**tomllib.loads(line[0]))), config, flags=re.MULTILINE
    )


def _short_command(command: str) -> dict[str, str]:
    """{"command": …} without --out, and with the names only of files that are given by absolute paths."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in OUT:
            next(words, None)
        elif not word.startswith("--out="):
            kept.append(Path(word).name if Path(word).is_absolute() else word)
    return {"command": shlex.join(kept)}


def _check_loses_nothing(target: Path, made: Archive) -> None:
    """An existing archive may only be replaced by one that contains all its runs."""
    lost = [name for name in archive.read(target).runs if name not in made.runs] if target.exists() else []
    if lost:
        counted = "1 run that is" if len(lost) == 1 else f"{len(lost)} runs that are"
        raise ValueError(
            f"{target} holds {counted} not among those given ({lost[0]}{', …' if len(lost) > 1 else ''}): "
            f"give {target} too, or delete it"
        )


def _write(target: Path, made: Archive) -> Packed:
    data = archive.to_bytes(made)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, data)
    not_committed = sum(run.tree != COMMITTED for run in made.runs.values())
    return Packed(target, len(made.runs), not_committed, len(data))


def _short(line: Line) -> Line:
    digits = lambda name: EVALUATION_DIGITS if name == "evaluation" else TRAINING_DIGITS
    return {name: _rounded(value, digits(name)) for name, value in line.items() if name not in OMITTED_KEYS}


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(entry, digits) for name, entry in value.items()}
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
