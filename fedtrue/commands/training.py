"""`fedtrue run`, `fedtrue resume`."""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, RoundsBar, printer, table
from fedtrue.commands.outcomes import metrics_table
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
    config = config_from(options)
    if config.rounds is not None:
        check_int("rounds", config.rounds, low=1)
    return _train(config, options.out, options.json)


def resume(options: Namespace) -> Answer:
    out: Path = options.run
    if (out / SWEEP).exists():
        from fedtrue.commands import sweeping

        return sweeping.run_sweep(out / SWEEP, out, options)
    if not folder.is_run_folder(out):
        raise ValueError(f"{out} is not a run folder: fedtrue run TASK --out {out} creates one")
    if summary := read_summary(out):
        return Answer(summary, printer(f"{out} has ended already, after {summary['rounds']} rounds: nothing to do"))
    return _train(read_toml(out / CONFIG), out, options.json, resume=True)


def _train(config: RunConfig, out: Path | None, quiet: bool, resume: bool = False) -> Answer:
    check_names(config)
    if out and not resume and folder.is_run_folder(out):
        with folder.RunLock(out):  # its error names the process that is writing the folder
            folder.check_new(out)
    task = load_task(config)
    method = build_method(config, task)
    config = resolved(config, task)
    rounds = config.rounds or 0
    say = stderr_printer(quiet)
    if task.source:
        say(f"data: {task.source}")
    start_time = time.perf_counter()
    with RoundsBar(rounds) as bar, Stop() as stop:
        result = train_run(
            task,
            method,
            simulation_arguments(config, task),
            HostSchedule(rounds, config.evaluate_every, config.checkpoint_every),
            Files(out, resume, config.settings(), config.tensorboard) if out else None,
            stop=stop,
            progress=bar,
            say=say if task.source or out else stderr_printer(True),  # a toy problem needs no messages about memory
        )
    facts = run_facts(task, result)
    facts["seconds"] = time.perf_counter() - start_time
    if out:
        facts["out"] = str(out)
    rows = [[name, value] for name, value in facts.items() if not isinstance(value, list)]
    title = f"{config.task}: {config.name()}, {rounds} rounds"
    show = printer(metrics_table(title, result.summary), table("", ["", "value"], rows))
    return Answer({**facts, **flat(result.summary)}, show)


def stderr_printer(quiet: bool) -> Callable[[str], None]:
    """A function that prints messages to stderr, or nothing if `quiet`."""
    console = Console(stderr=True, quiet=quiet)
    return lambda line: console.print(line, highlight=False, soft_wrap=True)


def run_facts(task: Task, result: Result) -> dict[str, Any]:
    """What there is to tell of a run besides its metrics."""
    facts: dict[str, Any] = {"rounds": len(result.history.get("round", []))}
    if facts["rounds"]:
        facts["dropped_clients"] = int(result.history["dropped"].sum())
        facts["skipped_rounds"] = int((result.history["clients"] == 0).sum())
        facts["steps"], facts["idle_lane_steps"] = (int(result.history[name].sum()) for name in ("steps", "idle_steps"))
    if hasattr(task, "minimiser"):
        facts["distance_from_minimiser"] = float(np.linalg.norm(result.params - task.minimiser))
        facts["params"], facts["minimiser"] = result.params.tolist(), task.minimiser.tolist()
    return facts


def config_from(options: Namespace) -> RunConfig:
    """The settings of a TOML file or the defaults of a task, changed by the flags."""
    config = read_toml(Path(options.task)) if options.task.endswith(".toml") else RunConfig(options.task)
    flags = {name: getattr(options, name) for name in ("model", "method", *METHOD_FLAGS, *run_settings())}
    config = change(config, {name: value for name, value in flags.items() if value is not None}, "command line")
    return apply_settings(config, options.settings)


def apply_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """`config` changed by every `--set KEY=VALUE`."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, not {setting!r}")
        config = set_one(config, key, parse_value(text), "--set")
    return config
