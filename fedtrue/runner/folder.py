"""A run's folder: made once with its settings, then written by one process at a time.

config.toml         every setting, and where the run came from     summary.json        when it has ended
metrics.jsonl       one line a round                               model.safetensors   its final weights
checkpoints/        the last two                                   tensorboard/        if asked for
"""

import errno
import fcntl
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

import fedtrue
from fedtrue.files import write_atomically
from fedtrue.runner.records import CONFIG
from fedtrue.runner.summary import as_table
from fedtrue.runner.toml import to_toml
from fedtrue.tasks.metric import Metric

FROM_PYTHON = {"from_python": True}  # settings that no TOML file can hold
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "safetensors")


def make(path: Path, settings: Mapping[str, Any], metric_kinds: Mapping[str, Metric] = MappingProxyType({})) -> None:
    """A new run folder; one that holds a run already is left alone. `metric_kinds`: as the task declares them."""
    check_new(path)
    path.mkdir(parents=True, exist_ok=True)
    found = {**origin(), "metrics": as_table(metric_kinds)}
    write_atomically(path / CONFIG, to_toml({**settings, "origin": found}).encode(errors="replace"))


def check_new(path: Path) -> None:
    """Refuses a folder that holds a run already."""
    if is_one(path):
        raise ValueError(f"{path} holds a run already: go on with `fedtrue resume {path}`, or give another --out")


class Held:
    """A run folder that this process alone may write, until it ends in any way."""

    def __init__(self, path: Path):
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = (path / ".lock").open("a+b", buffering=0)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            holder = self._lock.read().decode().strip()
            self._lock.close()
            raise ValueError(f"{path} is being written by process {holder}: wait for it, or stop it") from None
        with suppress(OSError):  # the number is a courtesy; a full disk is said where it matters
            self._lock.truncate(0)
            self._lock.write(str(os.getpid()).encode())

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._lock.close()
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            cure = f"make room, then go on with `fedtrue resume {self.path}`" if is_one(self.path) else "make room"
            raise OSError(f"{os.strerror(error.errno)}, writing {error.filename or self.path}: {cure}") from error


def is_one(path: Path) -> bool:
    """Whether a run was ever started there."""
    return (path / CONFIG).exists()


def origin() -> dict[str, Any]:
    """Where a run comes from: version, commit, devices, packages, command line, time."""
    return {
        "version": fedtrue.__version__,
        "commit": _commit(),
        "command": _command(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _is_ours(program: str) -> bool:
    """`fedtrue`, or `python -m fedtrue`."""
    return Path(program).parent == Path(fedtrue.__file__).parent


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _command() -> str:
    """As it can be typed again."""
    program = Path(sys.argv[0]).name
    return shlex.join([*(["python", "-m", "fedtrue"] if program == "__main__.py" else [program]), *sys.argv[1:]])


def _commit() -> str:
    """Of the checkout fedtrue runs from, with a + if files were changed; empty if it was installed."""
    git = ["git", "-C", str(Path(fedtrue.__file__).parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + ("+" if changed else "")
