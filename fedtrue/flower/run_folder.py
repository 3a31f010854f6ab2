"""The run folder of a server: the same files as those of `ft.train`, by the same writers."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrue.algorithm.method import Method
from fedtrue.runner import folder
from fedtrue.runner.records import read_config
from fedtrue.runner.settings import RunConfig
from fedtrue.runner.train import python_settings
from fedtrue.spec import part_name, part_options
from fedtrue.tasks.task import Task

FINGERPRINTS = {"data": None, "task_file": None, "start": None}  # the server does not see the clients' data


def open_run(path: Path, task: Task | str, method: Method, arguments: Mapping[str, Any]) -> None:
    """Creates the run folder, or checks that it has the same run, which then goes on. `task`: or the name of a run."""
    settings = folder.FROM_PYTHON | _settings(task, method, arguments)
    kinds = task.metric_kinds if isinstance(task, Task) else {}
    if folder.is_run_folder(path):
        folder.check_same(path, settings, FINGERPRINTS)
    else:
        folder.make(path, settings, kinds, FINGERPRINTS)


def run_identity(path: Path) -> str:
    """The same for every server process of a run, and another one for another run: clients keep their memory by it."""
    started = read_config(path)["origin"]["started"]
    return hashlib.sha256(f"{path.absolute()} {started}".encode()).hexdigest()[:16]


def _settings(task: Task | str, method: Method, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(task, Task):
        return python_settings(task, method, arguments)
    table = {"name": part_name(method.spec), **part_options(method.spec)}
    return RunConfig(task, method=table, **arguments).settings()
