"""Checks a run for client-drift bias: loads its last checkpoint and decomposes the next round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedtrue.algorithm.method import Method
from fedtrue.diagnosis.measure import CLIENTS, ORDERS, Diagnosis, Progress, Setting, measure_round
from fedtrue.diagnosis.verdict import Verdict, judge
from fedtrue.engine.arguments import check_method, check_task, described
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner import checkpoint, folder
from fedtrue.runner.build import build_method, load_task, steps_of_clients
from fedtrue.runner.records import CONFIG, read_config, read_summary
from fedtrue.runner.settings import AVAILABILITY, RunConfig, availability_of, read_toml
from fedtrue.tasks.task import Task


def diagnose_run(
    run: str | Path,
    task: Task | None = None,
    method: Method | None = None,
    *,
    clients: int = CLIENTS,
    orders: int = ORDERS,
    progress: Progress = lambda clients, count: clients,
) -> Diagnosis:
    """The numbers of `diagnose`, without their interpretation; `progress` wraps the iteration over clients."""
    _check_arguments(run, task, method)
    path = Path(run)
    folder.check_run_folder(path, "diagnose")
    if (read_summary(path) or {}).get("status") == "diverged":
        raise ValueError(f"{path} has diverged: diagnose a run with a smaller learning rate")
    newest = checkpoint.newest(path / "checkpoints", lambda line: None)
    if newest is None:
        raise ValueError(f"{path} has no checkpoint yet: resume it (fedtrue resume {path}), then diagnose")
    config = _config(path, task, method)
    task = task or load_task(config)
    method = method or build_method(config, task)
    steps = _steps_in_time(config, task)
    setting = Setting(config.cohort, steps, config.rate_multipliers, config.seed)
    with float64(task.float64):
        server, memory_of = _restored(newest, task, method, setting)
        return measure_round(task, method, server, memory_of, newest.round, setting, clients, orders, progress)


def _check_arguments(run: Any, task: Any, method: Any) -> None:
    if not isinstance(run, str | Path):
        raise ValueError(f"run is {described(run)}: give the folder of a run, made by ft.train(…, out=FOLDER)")
    if task is not None:
        check_task(task)
    if method is not None:
        check_method(method)


class Finding(NamedTuple):
    """The numbers and their interpretation."""

    diagnosis: Diagnosis
    verdict: Verdict


def diagnose(
    run: str | Path,
    task: Task | None = None,
    method: Method | None = None,
    *,
    clients: int = CLIENTS,
    orders: int = ORDERS,
) -> Finding:
    """Check a run for client-drift bias: which terms move the server at its last model, and what to do.

    Args:
        run: the run folder.
        task: that of the run, if it cannot be rebuilt from its folder because it was written in Python.
        method: the same for the method.
        clients: how many to sample, at least.
        orders: batch orders to average over.

    Returns:
        The numbers (`.diagnosis`) and their interpretation (`.verdict.sentence`, `.verdict.cure`).

    >>> import tempfile, fedtrue as ft
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> method = ft.fedopt(ft.client.sgd(0.001), correction="none")
    >>> _ = ft.train(ft.tasks.quadratic(), method, rounds=2000, local_steps=[2, 9], out=folder)
    >>> ft.diagnose(folder).verdict.cause
    'bias'
    """
    diagnosis = diagnose_run(run, task, method, clients=clients, orders=orders)
    return Finding(diagnosis, judge(diagnosis))


def _steps_in_time(config: RunConfig, task: Task) -> int | Sequence[int] | None:
    """The local steps, as far as clients finish them before the deadline, if the run has one."""
    steps, availability = steps_of_clients(config, task), availability_of(config)
    if availability is None or availability.deadline is None:
        return steps
    in_time = availability.steps(task.steps_of_clients(steps), config.seed)
    if not in_time.all():
        raise ValueError(
            f"{int((in_time == 0).sum())} clients never reply before the deadline, which a diagnosis does not account "
            "for: diagnose a run with a longer deadline"
        )
    return in_time.tolist()


def _config(path: Path, task: Task | None, method: Method | None) -> RunConfig:
    """The settings of the run; if `task` and `method` are given, those in the file are not read."""
    table = read_config(path)
    if task is None or method is None:
        if table.get("from_python"):
            cure = "in Python, ft.diagnose(RUN, task, method)"
            raise ValueError(f"{path} cannot be rebuilt, as some of its parts have no name: {cure}")
        folder.warn_if_task_file_changed(path, table.get("origin", {}), table["task"])
        return read_toml(path / CONFIG)
    names = ("cohort", "local_steps", "local_epochs", "rate_multipliers", "seed", "batch_size", *AVAILABILITY)
    return RunConfig(str(table["task"]), **{name: table[name] for name in names if name in table})


def _restored(saved: checkpoint.Checkpoint, task: Task, method: Method, setting: Setting) -> tuple[Any, Any]:
    """The server in the checkpoint, and a function client → its memory."""
    simulation = Simulation(
        task,
        method,
        cohort=setting.cohort,
        local_steps=setting.local_steps,
        rate_multipliers=setting.rate_multipliers,
        seed=setting.seed,
        data_on_device=False,
    )
    start = simulation.start()
    checkpoint.check_clients(saved, len(task.train))
    state = checkpoint.restored(saved, simulation.on_host(start, saved.clients))
    row_of = {int(client): row for row, client in enumerate(saved.clients)}

    def memory_of(client: int) -> Any:
        if client in row_of:
            rows = jax.tree.map(lambda leaf: leaf[row_of[client]], state.memory)
        else:
            rows = jax.tree.map(lambda leaf: leaf[0], simulation.on_host(start, np.array([client])).memory)
        return rows[0]

    return state.server, memory_of
