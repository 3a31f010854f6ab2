"""A run folder: created once with its settings, then written by one process at a time.

config.toml         every setting, and how the run was started     summary.json        once it has ended
metrics.jsonl       one line per round                             model.safetensors   its final weights
checkpoints/        the last two                                   tensorboard/        with --tensorboard
metrics.csv         with --csv
"""

import errno
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
from filelock import FileLock, Timeout

from fedtrue.files import write_atomically
from fedtrue.runner.archive import SUFFIX
from fedtrue.runner.records import CONFIG, SWEEP, TUNING, is_archived, read_config
from fedtrue.runner.settings import LOGGERS, STOPPING
from fedtrue.runner.summary import as_table
from fedtrue.runner.toml import to_toml
from fedtrue.tasks.metric import Metric
from fedtrue.tasks.own_file import file_fingerprint, task_file
from fedtrue.version import __version__

FROM_PYTHON = {"from_python": True}  # marks settings that cannot be rebuilt from TOML
CHANGEABLE_ON_RESUME = ("rounds", "lanes", "dispatch", "label", "reference", "checkpoint_every", *LOGGERS, *STOPPING)
FINGERPRINTED = {"data": "train data", "start": "file of weights to start from"}  # [origin] → what it is of
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
LOCK, LOCK_HOLDER = ".lock", ".lock.pid"
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "safetensors")


def make(
    path: Path,
    settings: Mapping[str, Any],
    metric_kinds: Mapping[str, Metric] = MappingProxyType({}),
    fingerprints: Mapping[str, str | None] = MappingProxyType({}),
) -> None:
    """Creates a run folder; a folder that already contains a run is refused.

    `metric_kinds`: as the task declares them; `fingerprints`: of what the settings name but do not contain.
    """
    check_new(path)
    path.mkdir(parents=True, exist_ok=True)
    _write_config(path, settings, {**origin(), **fingerprints, "metrics": as_table(metric_kinds)})


def _write_config(path: Path, settings: Mapping[str, Any], run_origin: Mapping[str, Any]) -> None:
    write_atomically(path / CONFIG, to_toml({**settings, "origin": run_origin}).encode(errors="replace"))


def check_same(path: Path, settings: Mapping[str, Any], fingerprints: Mapping[str, str | None]) -> None:
    """Refuses to resume a run with other settings or data; a new number of rounds is allowed, and recorded."""
    recorded = read_config(path)
    run_origin = recorded.pop("origin", {})
    requested = tomllib.loads(to_toml(settings))
    differences = [
        f"{key} was {_shown(recorded.get(key))}, is {_shown(requested.get(key))}"
        for key in dict.fromkeys([*recorded, *requested])
        if key not in CHANGEABLE_ON_RESUME and recorded.get(key) != requested.get(key)
    ]
    for name, what in FINGERPRINTED.items():
        if None not in (run_origin.get(name), fingerprints[name]) and run_origin[name] != fingerprints[name]:
            differences.append(f"the {what} is not the same")
    if differences:
        raise ValueError(f"{path} holds another run ({'; '.join(differences)}): give another out, or its settings")
    if requested["rounds"] < (least := recorded.get("rounds", 0)):
        raise ValueError(
            f"{path} was started for {least} rounds, not {requested['rounds']}: give at least {least} rounds"
        )
    warn_if_task_file_changed(path, run_origin, recorded["task"])
    if recorded.get("rounds") != requested.get("rounds"):
        record(path, rounds=requested["rounds"])


def record(path: Path, **settings: Any) -> None:
    """Changes these settings of a run folder's config.toml."""
    recorded = read_config(path)
    run_origin = recorded.pop("origin", {})
    _write_config(path, {**recorded, **settings}, run_origin)


def warn_if_task_file_changed(path: Path, run_origin: Mapping[str, Any], task: str) -> None:
    """Says if the Python file that defines a run's task is not as it was when the run was started."""
    if run_origin.get("task_file") not in (None, file_fingerprint(task)):
        warnings.warn(
            f"{task_file(task)} has changed since {path} was started: what follows is by the new file", stacklevel=3
        )


def _shown(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "…"


def check_new(path: Path) -> None:
    """Refuses a folder that already contains a run."""
    if is_run_folder(path):
        raise ValueError(f"{path} already contains a run: resume it with {how_to_resume(path)}, or give another out")


class RunLock:
    """Only this process can write to the run folder, until the `with` block or the process ends.

    The operating system holds the lock, so a `.lock` file that remains afterwards does not lock the folder. The process
    id is in a separate file because a locked file cannot be read on Windows.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock = FileLock(path / LOCK, timeout=0, thread_local=False)

    def __enter__(self) -> "RunLock":
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise ValueError(f"{self.path} is being written by {self._holder()}: wait for it, or stop it") from None
        except OSError as error:
            _raise_with_cure_if_disk_is_full(error, self.path)
            raise
        with suppress(OSError):  # the file serves only the message above
            (self.path / LOCK_HOLDER).write_text(str(os.getpid()))
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        with suppress(OSError):
            (self.path / LOCK_HOLDER).unlink()
        self._lock.release()
        _raise_with_cure_if_disk_is_full(error, self.path)

    def _holder(self) -> str:
        with suppress(OSError):
            if process_id := (self.path / LOCK_HOLDER).read_text():
                return f"process {process_id}"
        return "another process"


def _raise_with_cure_if_disk_is_full(error: BaseException | None, path: Path) -> None:
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        failure = f"{os.strerror(error.errno)}, writing {error.filename or path}"
        resume = f", then resume with {how_to_resume(path)}" if is_run_folder(path) else ""
        raise OSError(f"{failure}: free some disk space{resume}") from error


def how_to_resume(path: Path) -> str:
    """The command that resumes a run or a sweep; a Python call if the run cannot be rebuilt from its config."""
    if is_run_folder(path) and read_config(path).get("from_python"):
        return "ft.train(…, resume=True)"
    return f"`fedtrue resume {path}`"


def is_run_folder(path: Path) -> bool:
    """Whether a run was started in this folder."""
    return (path / CONFIG).exists()


def check_run_folder(path: Path, purpose: str) -> None:
    """Refuses anything else, and says what to give in its place. `purpose`: what is to be done, e.g. "diagnose"."""
    if is_run_folder(path):
        return
    if path.name.endswith(SUFFIX) or is_archived(path):
        raise ValueError(f"{path}: an archive has no weights or checkpoints: {purpose} the folder of the run")
    if path.is_file():
        raise ValueError(f"{path} is a file: {purpose} the folder of a run, e.g. {path.parent}")
    held = sorted(config.parent for pattern in ("*", "*/*") for config in path.glob(f"{pattern}/{CONFIG}"))
    if held:
        kind = "a comparison" if is_comparison(path) else "a sweep" if (path / SWEEP).exists() else "a folder of runs"
        raise ValueError(f"{path} is {kind}: {purpose} one of its runs, e.g. {held[0]}")
    raise ValueError(f"{path} is not a run folder: fedtrue run TASK --out {path} makes one")


def is_comparison(path: Path) -> bool:
    """Whether `fedtrue compare` has written this folder."""
    return (path / f"{TUNING}.toml").exists()


def settings_hash(path: Path) -> str | None:
    """Of the settings in config.toml that a resumed run cannot change; None without the file."""
    if not is_run_folder(path):
        return None
    fixed = {key: value for key, value in read_config(path).items() if key not in (*CHANGEABLE_ON_RESUME, "origin")}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True, default=str).encode()).hexdigest()[:16]


def origin() -> dict[str, Any]:
    """How a run was started: version, commit, devices, packages, command line, time."""
    return {
        "version": __version__,
        "commit": _commit(),
        "command": _command(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.local_devices()],
        "python": platform.python_version(),
        "packages": {name: installed for name in PACKAGES if (installed := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _command() -> str:
    """The command line, quoted for a shell."""
    program = Path(sys.argv[0]).name
    return shlex.join([*(["python", "-m", "fedtrue"] if program == "__main__.py" else [program]), *sys.argv[1:]])


def _commit() -> str:
    """The commit of the checkout that fedtrue runs from, with a + for uncommitted changes; empty if installed."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + ("+" if changed else "")
