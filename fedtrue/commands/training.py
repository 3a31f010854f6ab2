"""`fedtrue run`."""

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedtrue.commands.answer import Answer, RoundsBar, printed, table
from fedtrue.runner.config import NOT_FLAGS, RunConfig, change, check_names, parse_value, read_toml
from fedtrue.runner.train import Result, train
from fedtrue.tasks.task import Task


def run(options: Namespace) -> Answer:
    config = config_from(options)
    check_names(config)
    task = config.load_task()
    method = config.build_method(task)
    rounds = config.rounds if config.rounds is not None else task.rounds
    say = _said_nowhere if options.json else _said_on_stderr
    if task.source:
        say(f"data: {task.source}")
    began = time.perf_counter()
    with RoundsBar(rounds) as bar:
        result = train(
            task,
            method,
            rounds=rounds,
            cohort=config.cohort,
            local_steps=config.local_steps,
            rate_multipliers=config.rate_multipliers,
            seed=config.seed,
            lanes=config.lanes,
            evaluate_every=config.evaluate_every,
            progress=bar,
            say=say if task.source else None,  # a problem made of a few numbers needs no word about memory
        )
    found = outcome(task, result)
    found["seconds"] = time.perf_counter() - began
    rows = [[name, value] for name, value in found.items() if not isinstance(value, list | dict)]
    title = f"{config.task}: {config.method or config.client.name + ' + ' + config.correction}, {rounds} rounds"
    return Answer(found, printed(table(title, ["", "value"], rows)))


def _said_on_stderr(line: str) -> None:
    Console(stderr=True).print(line, highlight=False)


def _said_nowhere(line: str) -> None:
    pass


def outcome(task: Task, result: Result) -> dict[str, Any]:
    """What a run found, in names and numbers."""
    found: dict[str, Any] = {"rounds": len(result.history.get("round", []))}
    if found["rounds"]:
        found["train_loss"] = float(result.history["loss"][-1])
        found["dropped_clients"] = int(result.history["dropped"].sum())
        found["skipped_rounds"] = int((result.history["clients"] == 0).sum())
        found["steps"], found["idle_lane_steps"] = (int(result.history[name].sum()) for name in ("steps", "idle_steps"))
    if hasattr(task, "minimiser"):
        found["distance_from_minimiser"] = float(np.linalg.norm(result.params - task.minimiser))
        found["params"], found["minimiser"] = result.params.tolist(), task.minimiser.tolist()
    for split, metrics in (result.evaluations[-1]["metrics"] if result.evaluations else {}).items():
        found.update({f"{split}_{name}": value for name, value in metrics.items()})
    return found


def config_from(options: Namespace) -> RunConfig:
    """The run a command line asks for: a TOML file or a task's name, changed by the flags."""
    config = read_toml(Path(options.task)) if options.task.endswith(".toml") else RunConfig(options.task)
    flags = {f.name: getattr(options, f.name) for f in fields(RunConfig) if f.name not in NOT_FLAGS}
    config = change(config, {key: value for key, value in flags.items() if value is not None}, "command line")
    for part in ("client", "server"):
        name, rate = getattr(options, part), getattr(options, f"{part}_rate")
        chosen = ({"name": name} if name else {}) | ({"learning_rate": rate} if rate is not None else {})
        config = change(config, {part: chosen}, "command line")
    return apply_settings(config, options.settings)


def apply_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """`--set KEY=VALUE`, as often as it was given."""
    for setting in settings:
        key, found, text = setting.partition("=")
        if not found:
            raise ValueError(f"--set takes KEY=VALUE, not {setting!r}")
        first, _, rest = key.partition(".")
        config = change(config, {first: {rest: parse_value(text)} if rest else parse_value(text)}, "--set")
    return config
