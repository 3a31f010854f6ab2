"""Training from Python: `ft.train`, and `train_run`, which the command line calls too."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.upload import privacy_of
from fedtrue.data.fingerprint import fingerprint
from fedtrue.engine.arguments import check_run
from fedtrue.engine.capacity import message_bytes
from fedtrue.engine.simulation import Simulation
from fedtrue.precision import float64
from fedtrue.runner import folder
from fedtrue.runner.callbacks.calls import Calls
from fedtrue.runner.callbacks.interface import Callback, train_metrics
from fedtrue.runner.callbacks.tensorboard import TensorBoard
from fedtrue.runner.host_schedule import CHECKPOINT_EVERY, HostSchedule
from fedtrue.runner.journal import Journal, Result, newest_checkpoints
from fedtrue.runner.progress import Progress, latest_evaluation, shown
from fedtrue.runner.records import read_config
from fedtrue.runner.resolve import usual_precision
from fedtrue.runner.rounds import LogLine, run_rounds
from fedtrue.runner.settings import RunConfig, availability_settings
from fedtrue.runner.stop import Stop
from fedtrue.runner.warm_start import GIVEN_IN_PYTHON, start_setting, starting_weights, weights_fingerprint
from fedtrue.spec import is_rebuildable, part_name, part_options, plain
from fedtrue.tasks.own_file import file_fingerprint
from fedtrue.tasks.task import Task
from fedtrue.types import Params


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
    dispatch: str | None = None,
    availability: Availability | None = None,
    start: Params | str | Path | None = None,
    evaluate_every: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | str = CHECKPOINT_EVERY,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | Progress | None = None,
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
        dispatch: "round": all local steps in one program, "step": each alone, "timed": the faster of the two; without
            it "round", or "timed" if the model has a convolution that is slow inside loops.
        availability: simulate slow clients and clients that do not reply, `ft.Availability(…)`.
        start: weights to start from instead of the task's own: a tree of arrays, a .safetensors file or a run folder.
        evaluate_every: rounds between evaluations on held-out data; after the last round it is always evaluated.
        out: a folder for settings, records, checkpoints and the final weights.
        resume: resume the run in `out`; the result is the same as without interruption. If the settings differ from
            those of the run, a ValueError is raised before anything is written.
        checkpoint_every: rounds, or seconds as "60s".
        tensorboard: write event files into `out` too.
        callbacks: objects with some of `on_start`, `on_round`, `on_evaluation`, `on_end`, or functions, called after
            every round; `ft.callbacks` has some. One that returns `ft.callbacks.STOP` ends the run.
        progress: True shows the progress in a terminal, a notebook or a log file; a function is called after every
            dispatch as `progress(rounds done, rounds, metrics)` with the metrics of the last cohort and evaluation.

    Returns:
        The final weights (`.params`), the records (`.history`, one entry per round), evaluations and a summary.

    >>> import fedtrue as ft
    >>> task = ft.tasks.quadratic()
    >>> result = ft.train(task, ft.fedopt(ft.client.adagrad(0.1)), rounds=5, seed=0)
    >>> len(result.history["loss"])
    5
    """
    check_run(task, method, availability)
    arguments: dict[str, Any] = {
        "cohort": cohort,
        "local_steps": local_steps,
        "rate_multipliers": rate_multipliers,
        "seed": seed,
        "lanes": lanes,
        "dispatch": dispatch,
    }
    host_settings = {"evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard}
    more = {"start": start_setting(start), **availability_settings(availability)}
    settings = python_settings(task, method, {"rounds": rounds, **arguments, **more, **host_settings})
    path = Path(out) if out is not None else None
    if path and tensorboard:
        callbacks = [*callbacks, TensorBoard(path / "tensorboard")]
    with shown(progress, rounds) as display:
        return train_run(
            task,
            method,
            {**arguments, "availability": availability},
            HostSchedule(rounds, evaluate_every, checkpoint_every),
            Files(path, resume, settings),
            start=start,
            callbacks=callbacks,
            progress=display,
        )


class Files(NamedTuple):
    """The folder of a run (None: it keeps nothing), and the settings for its config.toml."""

    path: Path | None
    resume: bool
    settings: Mapping[str, Any]


def train_run(
    task: Task,
    method: Method,
    arguments: Mapping[str, Any],
    schedule: HostSchedule,
    files: Files,
    *,
    start: Params | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Stop | None = None,
    progress: Progress | None = None,
    say: LogLine = lambda line: None,
) -> Result:
    """One run. `say` is called with lines for the user, first with the number of lanes, before compilation."""
    calls, path = Calls(callbacks, files.settings), files.path
    calls.check(task, schedule)
    with float64(task.float64):
        simulation = Simulation(task, method, **arguments)
        with folder.RunLock(path) if path else nullcontext():
            of_task = (task.metric_kinds, method.spec, task.model_weights)
            message, spent = message_bytes(task, method), privacy_of(method, len(task.train), simulation.plan.cohort)
            journal = Journal(path, len(task.train), message, *of_task, spent)
            fresh = start is not None and not newest_checkpoints([journal], lambda line: None)
            weights = starting_weights(start, task) if fresh else None
            open_folder(files, task, weights)
            if path and simulation.dispatch == "timed":  # another timing could choose the program with other last bits
                simulation.dispatch = read_config(path).get("dispatch", "timed")
            say(f"lanes: {simulation.lanes}")
            evaluation: Mapping[str, float] = {}

            def after(done: int) -> None:
                nonlocal evaluation
                if simulation.step_seconds is not None:
                    say(f"dispatch: {simulation.step_seconds}")
                    simulation.step_seconds = None  # once is enough
                    if path:
                        folder.record(path, dispatch=simulation.dispatch)
                if progress:
                    evaluation = latest_evaluation(journal.lines[-1:], evaluation)
                    progress(done, schedule.rounds, {**train_metrics(journal.lines[-1]), **evaluation})

            return run_rounds(
                simulation, [journal], schedule, stop or Stop(), after, say, calls=[calls], start=weights
            )[0]


def open_folder(files: Files, task: Task, weights: Params | None = None) -> None:
    """Creates the run folder, or checks that it contains the same run; `weights`: those that it starts from."""
    if files.path is None:
        return
    fingerprints = {
        "data": fingerprint(task.train),
        "task_file": file_fingerprint(files.settings["task"]),
        "start": weights_fingerprint(weights) if weights is not None else None,
    }
    if files.resume and folder.is_run_folder(files.path):
        folder.check_same(files.path, files.settings, fingerprints)
    else:
        folder.make(files.path, files.settings, task.metric_kinds, fingerprints)


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
        holdout_clients=task.holdout_clients,
        precision=precision,
        **{key: plain(value) for key, value in arguments.items()},
    )
    settings = config.settings()
    settings["cohort"] = settings["cohort"] or task.cohort
    in_files = not (settings["start"] or "").startswith(GIVEN_IN_PYTHON)
    rebuildable = task.spec is not None and is_rebuildable(method.spec) and is_rebuildable(options) and in_files
    return settings if rebuildable else {**folder.FROM_PYTHON, **settings}
