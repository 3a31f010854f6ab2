"""Training from Python: `ft.train`, and `train_run`, which the command line calls too."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from fedtrue.algorithm.method import Method
from fedtrue.data.fingerprint import fingerprint
from fedtrue.engine.capacity import message_bytes
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner import folder
from fedtrue.runner.evaluation import Progress
from fedtrue.runner.host_schedule import CHECKPOINT_EVERY, HostSchedule
from fedtrue.runner.journal import Journal, Result
from fedtrue.runner.records import NOT_METRICS, Line
from fedtrue.runner.resolve import usual_precision
from fedtrue.runner.rounds import LogLine, run_rounds
from fedtrue.runner.settings import RunConfig
from fedtrue.runner.stop import Stop
from fedtrue.spec import is_rebuildable, part_name, part_options, plain
from fedtrue.tasks.task import Task


def train(
    task: Task,
    method: Method,
    *,
    rounds: int,
    cohort: int | None = None,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    seed: int = 0,
    lanes: int | None = None,
    evaluate_every: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | str = CHECKPOINT_EVERY,
    tensorboard: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Train `task` by `method`. The same seed gives the same initial weights, cohorts and batches for every
    method.

    Args:
        task: one of `ft.tasks`, or your own from `ft.tasks.from_arrays`.
        method: `ft.fedopt(…)`, or one of `ft.methods`.
        rounds: how many rounds to train.
        cohort: clients per round; without it, the task's.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.
        seed: of weights, cohorts and batches.
        lanes: clients trained in parallel per device; without it, chosen automatically.
        evaluate_every: rounds between evaluations on held-out data; after the last round it is always evaluated.
        out: a folder for settings, records, checkpoints and the final weights.
        resume: resume the run in `out`; the result is the same as without interruption. If the settings differ from
            those of the run, a ValueError is raised before anything is written.
        checkpoint_every: rounds, or seconds as "60s".
        tensorboard: write event files into `out` too.
        progress: called as `progress(rounds done, rounds, metrics of the last cohort)`.

    Returns:
        The final weights (`.params`), the records (`.history`, one entry per round), evaluations and a summary.

    >>> import fedtrue as ft
    >>> task = ft.tasks.quadratic()
    >>> result = ft.train(task, ft.fedopt(ft.client.adagrad(0.1)), rounds=5, seed=0)
    >>> len(result.history["loss"])
    5
    """
    arguments: dict[str, Any] = {
        "cohort": cohort,
        "local_steps": local_steps,
        "rate_multipliers": rate_multipliers,
        "seed": seed,
        "lanes": lanes,
    }
    host_settings = {"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard}
    settings = python_settings(task, method, {"rounds": rounds, **arguments, **host_settings})
    files = Files(Path(out), resume, settings, tensorboard) if out is not None else None
    schedule = HostSchedule(rounds, evaluate_every, checkpoint_every)
    return train_run(task, method, arguments, schedule, files, progress=progress)


class Files(NamedTuple):
    """The folder of a run, and the settings for its config.toml."""

    path: Path
    resume: bool
    settings: Mapping[str, Any]
    tensorboard: bool


def train_run(
    task: Task,
    method: Method,
    arguments: Mapping[str, Any],
    schedule: HostSchedule,
    files: Files | None,
    *,
    stop: Stop | None = None,
    progress: Progress | None = None,
    say: LogLine = lambda line: None,
) -> Result:
    """One run. `say` is called with lines for the user, first with the number of lanes, before compilation."""
    with float64(task.float64):
        simulation = Simulation(task, method, **arguments)
        path = files.path if files else None
        with folder.RunLock(path) if path else nullcontext():
            if files:
                open_folder(files, task)
            say(f"lanes: {simulation.lanes}")
            tensorboard = files is not None and files.tensorboard
            message = message_bytes(task, method)
            journal = Journal(path, len(task.train), message, tensorboard, task.metric_kinds, method.spec)

            def after(done: int) -> None:
                if progress:
                    progress(done, schedule.rounds, train_metrics(journal.lines[-1]))

            return run_rounds(simulation, [journal], schedule, stop or Stop(), after, say)[0]


def open_folder(files: Files, task: Task) -> None:
    """Creates the run folder, or checks that it contains the same run."""
    data = fingerprint(task.train)
    if files.resume and folder.is_run_folder(files.path):
        folder.check_same(files.path, files.settings, data)
    else:
        folder.make(files.path, files.settings, task.metric_kinds, data)


def python_settings(task: Task, method: Method, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for config.toml of a run started from Python; marked if the run cannot be rebuilt from them."""
    spec = task.spec or {"name": task.name}
    options = part_options(spec)
    precision = options.pop("dtype", None) or usual_precision(task)
    config = RunConfig(
        part_name(spec),
        task_options=options,
        method={"name": part_name(method.spec), **part_options(method.spec)},
        local_epochs=task.local_epochs,
        batch_size=task.batch_size,
        accumulate=task.accumulate if task.accumulate > 1 else None,
        evaluation_limit=task.evaluation_limit,
        precision=precision,
        **{key: plain(value) for key, value in arguments.items()},
    )
    settings = config.settings()
    settings["cohort"] = settings["cohort"] or task.cohort
    rebuildable = task.spec is not None and is_rebuildable(method.spec) and is_rebuildable(options)
    return settings if rebuildable else {**folder.FROM_PYTHON, **settings}


def train_metrics(line: Line) -> dict[str, float]:
    """The metrics on the training batches of the cohort."""
    return {name: value for name, value in line.items() if name not in NOT_METRICS}
