"""Atomic writes: to a temporary name, synced to the disk, then renamed."""

import os
import threading
from contextlib import suppress
from pathlib import Path

PARTIAL = ".part"


def write_atomically(path: Path, data: bytes) -> None:
    """`path` holds either its old contents or all of `data`, whatever happens; no partial file is left."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}{PARTIAL}")  # others may write it too
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        error.filename = error.filename or str(path)  # a full disk does not say where
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file's bytes, or a folder's names, are on the disk. Windows cannot open folders."""
    is_folder = path.is_dir()
    if is_folder and not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows flushes only what is open for writing
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
