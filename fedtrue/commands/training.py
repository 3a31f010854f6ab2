"""`fedtrue run`."""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedtrue.commands.answer import Answer, RoundsBar, printed, table
from fedtrue.commands.outcomes import outcome_table
from fedtrue.runner import folder
from fedtrue.runner.build import build_method, load_task, simulation_arguments
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.journal import Result
from fedtrue.runner.records import CONFIG, SWEEP, read_summary
from fedtrue.runner.resolve import resolved
from fedtrue.runner.settings import (
    METHOD_FLAGS,
    RunConfig,
    change,
    check_names,
    parse_value,
    read_toml,
    run_settings,
    set_one,
)
from fedtrue.runner.stop import Stop
from fedtrue.runner.summary import flat
from fedtrue.runner.train import Files, train_run
from fedtrue.tasks.task import Task


def run(options: Namespace) -> Answer:
    return _train(config_from(options), options.out, options.json)


def resume(options: Namespace) -> Answer:
    out: Path = options.run
    if (out / SWEEP).exists():
        from fedtrue.commands import sweeping

        return sweeping.run(out / SWEEP, out, options)
    if not folder.is_run_folder(out):
        raise ValueError(f"{out} is not a run folder: fedtrue run TASK --out {out} makes one")
    if summary := read_summary(out):
        return Answer(summary, printed(f"{out} has ended already, after {summary['rounds']} rounds: nothing to do"))
    return _train(read_toml(out / CONFIG), out, options.json, resume=True)


def _train(config: RunConfig, out: Path | None, quiet: bool, resume: bool = False) -> Answer:
    check_names(config)
    if out and not resume and folder.is_run_folder(out):
        with folder.RunLock(out):  # whoever is writing it is named
            folder.check_new(out)
    task = load_task(config)
    method = build_method(config, task)
    config = resolved(config, task)
    rounds = config.rounds or 0
    say = speaker(quiet)
    if task.source:
        say(f"data: {task.source}")
    began = time.perf_counter()
    with RoundsBar(rounds) as bar, Stop() as stop:
        result = train_run(
            task,
            method,
            simulation_arguments(config, task),
            HostSchedule(rounds, config.evaluate_every, config.checkpoint_every),
            Files(out, resume, config.settings(), config.tensorboard) if out else None,
            stop=stop,
            progress=bar,
            say=say if task.source or out else speaker(True),  # a problem of a few numbers needs no word about memory
        )
    found = outcome(task, result)
    found["seconds"] = time.perf_counter() - began
    if out:
        found["out"] = str(out)
    metrics = flat(result.summary)
    rows = [[name, value] for name, value in found.items() if not isinstance(value, list)]
    title = f"{config.task}: {config.name()}, {rounds} rounds"
    shown = printed(outcome_table(title, result.summary), table("", ["", "value"], rows))
    return Answer({**found, **metrics}, shown)


def speaker(quiet: bool) -> Callable[[str], None]:
    """Where a command says what it is doing: on stderr, or nowhere."""
    console = Console(stderr=True, quiet=quiet)
    return lambda line: console.print(line, highlight=False, soft_wrap=True)


def outcome(task: Task, result: Result) -> dict[str, Any]:
    """What a run found beside its metrics, in names and numbers."""
    found: dict[str, Any] = {"rounds": len(result.history.get("round", []))}
    if found["rounds"]:
        found["dropped_clients"] = int(result.history["dropped"].sum())
        found["skipped_rounds"] = int((result.history["clients"] == 0).sum())
        found["steps"], found["idle_lane_steps"] = (int(result.history[name].sum()) for name in ("steps", "idle_steps"))
    if hasattr(task, "minimiser"):
        found["distance_from_minimiser"] = float(np.linalg.norm(result.params - task.minimiser))
        found["params"], found["minimiser"] = result.params.tolist(), task.minimiser.tolist()
    return found


def config_from(options: Namespace) -> RunConfig:
    """The run a command line asks for: a TOML file or a task's name, changed by the flags."""
    config = read_toml(Path(options.task)) if options.task.endswith(".toml") else RunConfig(options.task)
    flags = {name: getattr(options, name) for name in ("method", *METHOD_FLAGS, *run_settings())}
    given = {name: value for name, value in flags.items() if value is not None}
    config = change(config, given, "command line")
    return apply_settings(config, options.settings)


def apply_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """`--set KEY=VALUE`, as often as it was given."""
    for setting in settings:
        key, found, text = setting.partition("=")
        if not found:
            raise ValueError(f"--set takes KEY=VALUE, not {setting!r}")
        config = set_one(config, key, parse_value(text), "--set")
    return config
