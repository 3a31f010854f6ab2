"""The cache of converted data: folders that are built once and opened many times, keyed by what they are made from.

A folder gets its final name, by renaming, only when it is complete. The process that builds it holds a file lock, which
the operating system releases when the process ends for any reason: an incomplete folder whose lock is free was
abandoned, and is removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedtrue.data import columns
from fedtrue.data.client_data import ClientData
from fedtrue.files import sync

LAYOUT_VERSION = 1  # increased when the meaning of the files in a folder changes
META = "meta.json"
PARTIAL = ".partial"
OLD = ".old"
FINGERPRINT_BLOCKS, FINGERPRINT_BLOCK_BYTES = 256, 1 << 16  # 16 MiB, read in milliseconds; smaller files are read whole


def cache_root() -> Path:
    """`$FEDTRUE_CACHE`, else the user's cache folder."""
    if configured := os.environ.get("FEDTRUE_CACHE"):
        return Path(configured)
    try:
        import platformdirs
    except ImportError:
        return Path.home() / ".cache" / "fedtrue"
    return Path(platformdirs.user_cache_dir("fedtrue"))


def cached(
    name: str,
    sources: Sequence[Path],
    version: int,
    settings: dict[str, Any],
    schema: columns.Schema,
    examples: Callable[[], columns.Examples],
    progress: Callable[[int], None] | None = None,
) -> ClientData:
    """The client data that `examples` yields: converted on the first call, memory-mapped on later calls.

    Args:
        name: of the folder, and part of its key.
        sources: the files that `examples` reads.
        version: of the conversion. Increase it when the same files give other rows.
        settings: what the rows depend on besides the files.
        schema: the columns to write.
        examples: yields (client id, {column: value}), or a `Chunk` of many examples, in the order of the source. The
            examples of different clients may be interleaved.
        progress: called with the number of examples converted so far.

    Returns:
        The data. A change in `version`, `settings`, `schema` or a source file leads to a new conversion.
    """
    key = {"version": version, "settings": settings, "columns": columns.describe(schema)}
    folder = cached_folder(name, sources, key, lambda folder: columns.write(folder, schema, examples(), progress))
    return columns.open_columns(folder, schema)


def cached_folder(
    name: str, sources: Sequence[Path], key: dict[str, Any], build: Callable[[Path], dict[str, Any]]
) -> Path:
    """The folder that `build` fills from the sources; it is built if it does not exist or is damaged.

    The folder's meta.json holds what `build` returns, the key and the size of every file.
    """
    identities = [source_identity(Path(source)) for source in sources]
    key = {"layout": LAYOUT_VERSION, "name": name, **key, "sources": identities}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    folder = cache_root() / f"{name}-{digest[:16]}"
    if not is_intact(folder):
        build_folder(folder, key, build, "FEDTRUE_CACHE")
    return folder


def build_folder(
    folder: Path, key: dict[str, Any], build: Callable[[Path], dict[str, Any]], variable: str, replace: bool = False
) -> None:
    """Build a folder, or wait for the process that builds it. It appears under its name only when it is complete.

    Args:
        folder: its final path.
        key: entries of its meta.json.
        build: fills a folder that is given to it, and returns further entries.
        variable: the environment variable that determines where it is, for errors.
        replace: build it even if it exists; the old one stays until the new one is complete.
    """
    root = folder.parent
    with _explain_write_errors(root, variable):
        (root / ".locks").mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if replace or not is_intact(folder):  # else another process built it while this one waited
                _remove_abandoned(root)
                _build(folder, key, build)


def source_identity(path: Path) -> dict[str, Any]:
    """What identifies a source file in any folder: name, size, modification time, hash of sampled bytes."""
    try:
        status = path.stat()
    except FileNotFoundError:
        message = "the source file does not exist: check the path or FEDTRUE_DATA"
        raise FileNotFoundError(errno.ENOENT, message, str(path)) from None
    return {
        "file": path.name,
        "bytes": status.st_size,
        "changed_ns": status.st_mtime_ns,
        "sample_sha256": _sample_sha256(path, status.st_size),
    }


def _sample_sha256(path: Path, size: int) -> str:
    """The hash of blocks spread evenly over the file, first and last included; of the whole file if it is small."""
    blocks = min(FINGERPRINT_BLOCKS, -(-size // FINGERPRINT_BLOCK_BYTES))
    last_start = max(size - FINGERPRINT_BLOCK_BYTES, 0)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in range(blocks):
            file.seek(last_start * block // max(blocks - 1, 1))
            digest.update(file.read(FINGERPRINT_BLOCK_BYTES))
    return digest.hexdigest()


def is_intact(folder: Path) -> bool:
    """Whether every file exists with the size it was written with."""
    try:
        file_bytes = json.loads((folder / META).read_text())["files"]
        return all((folder / name).stat().st_size == expected for name, expected in file_bytes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _build(folder: Path, key: dict[str, Any], build: Callable[[Path], dict[str, Any]]) -> None:
    partial = folder.with_name(folder.name + PARTIAL)
    _discard(partial)  # left by a builder that was killed: this process holds its lock now
    partial.mkdir()
    try:
        counts = build(partial)
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        file_bytes = {path.relative_to(partial).as_posix(): path.stat().st_size for path in files}
        meta = {**key, **counts, "files": file_bytes}
        (partial / META).write_text(json.dumps(meta, indent=1, sort_keys=True))
        for path in (*partial.rglob("*"), partial):
            sync(path)
        if folder.exists():  # damaged or replaced: renamed first, so that no process opens it while it is removed
            old = folder.with_name(folder.name + OLD + PARTIAL)
            folder.rename(old)
            _discard(old)
        partial.rename(folder)
        sync(folder.parent)
    except BaseException:
        _discard(partial)
        raise


@contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold the folder's lock; raises Timeout if another process holds it and `wait` is false."""
    with FileLock(folder.parent / ".locks" / folder.name, timeout=-1 if wait else 0):
        yield


def _remove_abandoned(root: Path) -> None:
    """Remove incomplete folders whose builder has ended: those whose lock is free."""
    for partial in root.glob(f"*{PARTIAL}"):
        with suppress(Timeout), _locked(partial.with_suffix(""), wait=False):
            _discard(partial)


def _discard(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _explain_write_errors(root: Path, variable: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        read_only = error.errno in (errno.EACCES, errno.EROFS) and str(error.filename or "").startswith(str(root))
        if not full and not read_only:
            raise
        cure = f"free some space there or set {variable} to another folder (now {root})"
        raise OSError(error.errno, f"cannot write converted data: {error.strerror}; {cure}") from error
