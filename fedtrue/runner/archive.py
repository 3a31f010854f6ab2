"""Archives: the records of a sweep, or of a single run, as one compressed file, NAME.runs.xz.

Decompressed it is JSON lines, for `xzcat`, `grep` and `jq`:

    {"format": "fedtrue runs", "version": 1, "sweep": "the text of sweep.toml, null for a single run", "runs": 2}
    {"run": "000-sgd", "tree": "committed", "config": "the text of config.toml", "summary": {…}, "lines": 1500}
    {"round": 0, "loss": 4.4, …}        the 1,500 lines of this run's metrics.jsonl, then the next run:
    {"run": "001-adam", …}

Runs are in the order of their names. `tree` says whether the code that trained a run was committed.
"""

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

SUFFIX = ".runs.xz"
FORMAT, VERSION = "fedtrue runs", 1
XZ_MAGIC = b"\xfd7zXZ\x00"


@dataclass(frozen=True)
class ArchivedRun:
    """A run in an archive, as text; `records.py` parses it."""

    name: str  # of its folder
    config: str  # the text of its config.toml
    summary: dict[str, Any]
    tree: str  # of the code it was trained with: "committed", "uncommitted" or "unknown"
    lines: bytes  # as in metrics.jsonl, each with its newline


@dataclass(frozen=True)
class Archive:
    sweep: str | None  # the text of its sweep.toml; None for a single run
    runs: Mapping[str, ArchivedRun]  # by name


def to_bytes(archive: Archive) -> bytes:
    """The file's content. The same runs give the same bytes."""
    header = {"format": FORMAT, "version": VERSION, "sweep": archive.sweep, "runs": len(archive.runs)}
    parts = [_json_line(header)]
    for _, run in sorted(archive.runs.items()):
        description = {"run": run.name, "tree": run.tree, "config": run.config, "summary": run.summary}
        parts += [_json_line({**description, "lines": run.lines.count(b"\n")}), run.lines]
    return lzma.compress(b"".join(parts), preset=9 | lzma.PRESET_EXTREME)


def _json_line(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def read(path: Path) -> Archive:
    """The archive at `path`; a damaged file, or one of another format, is refused."""
    try:
        state = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path} does not exist: `fedtrue pack RUNS -o {path}` writes it") from None
    return _read(path, (state.st_ino, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1)  # the runs of an archive are read one after another
def _read(path: Path, state: tuple[int, int, int]) -> Archive:
    header, *lines = _decompressed(path).splitlines() or [b""]
    sweep, count = _header(path, header)
    try:
        runs = list(_runs(lines))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"its lines are inconsistent: {error!r}") from None
    if not runs or len(runs) != count or len({run.name for run in runs}) != count:
        raise _damaged(path, f"the header says {count} runs, {len(runs)} found")
    return Archive(sweep, {run.name: run for run in runs})


def _decompressed(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(XZ_MAGIC):
        raise _not_an_archive(path)
    try:
        return lzma.decompress(content)
    except lzma.LZMAError as error:
        raise _damaged(path, str(error)) from None


def _header(path: Path, line: bytes) -> tuple[str | None, int]:
    """The sweep's text and the number of runs."""
    try:
        header = json.loads(line)
    except ValueError:
        raise _not_an_archive(path) from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _not_an_archive(path)
    if (version := header.get("version")) != VERSION:
        raise ValueError(f"{path} has format version {version}, this fedtrue reads {VERSION}: update fedtrue")
    return header.get("sweep"), header.get("runs", 0)


def _runs(lines: Sequence[bytes]) -> Iterator[ArchivedRun]:
    place = 0
    while place < len(lines):
        run = json.loads(lines[place])
        end = place + 1 + run["lines"]
        if end > len(lines):
            raise ValueError(f"{run['run']} has {len(lines) - place - 1} of {run['lines']} lines")
        rounds = b"".join(line + b"\n" for line in lines[place + 1 : end])
        yield ArchivedRun(run["run"], run["config"], run["summary"], run["tree"], rounds)
        place = end


def _not_an_archive(path: Path) -> ValueError:
    return ValueError(f"{path} is not an archive of runs: give a run folder, or a file that `fedtrue pack` wrote")


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is damaged ({why}): copy it again, or write it again with `fedtrue pack`")
