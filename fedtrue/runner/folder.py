"""A run's folder: made once with its settings, then written by one process at a time.

config.toml         every setting, and where the run came from     summary.json        when it has ended
metrics.jsonl       one line a round                               model.safetensors   its final weights
checkpoints/        the last two                                   tensorboard/        if asked for
"""

import fcntl
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

import fedtrue
from fedtrue.files import write_atomically
from fedtrue.runner.records import CONFIG
from fedtrue.runner.toml import to_toml

FROM_PYTHON = {"from_python": True}  # settings that no TOML file can hold
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "safetensors")


def make(path: Path, settings: Mapping[str, Any]) -> None:
    """A new run folder; one that holds a run already is left alone."""
    if is_one(path):
        raise ValueError(f"{path} holds a run already: go on with `fedtrue resume {path}`, or give another --out")
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / CONFIG, to_toml({**settings, "origin": origin()}).encode())


class Held:
    """A run folder that this process alone may write, until it ends in any way."""

    def __init__(self, path: Path):
        self._lock = (path / ".lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            holder = self._lock.read().strip()
            self._lock.close()
            raise ValueError(f"{path} is being written by process {holder}: wait for it, or stop it") from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._lock.close()


def is_one(path: Path) -> bool:
    """Whether a run was ever started there."""
    return (path / CONFIG).exists()


def origin() -> dict[str, Any]:
    """Where a run comes from: version, commit, devices, packages, command line, time."""
    return {
        "version": fedtrue.__version__,
        "commit": _commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """Of the checkout fedtrue runs from, with a + if files were changed; empty if it was installed."""
    git = ["git", "-C", str(Path(fedtrue.__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + ("+" if changed else "")
