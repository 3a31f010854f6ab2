"""`fedtrue run`, `fedtrue resume`."""

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, printer, table
from fedtrue.commands.outcomes import exploded_lines, metrics_table
from fedtrue.engine.devices import use_all_cores_unless_set
from fedtrue.runner import folder
from fedtrue.runner.build import build_method, load_task, simulation_arguments
from fedtrue.runner.callbacks.from_settings import callbacks_of
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.load import load_run
from fedtrue.runner.progress import shown
from fedtrue.runner.records import CONFIG, SWEEP, read_config, read_summary
from fedtrue.runner.resolve import resolved
from fedtrue.runner.settings import (
    METHOD_FLAGS,
    RunConfig,
    change,
    check_names,
    dotted,
    parse_value,
    read_toml,
    run_settings,
    set_one,
)
from fedtrue.runner.stop import Stop
from fedtrue.runner.summary import flat, read_outcome
from fedtrue.runner.train import Files, train_run
from fedtrue.spec import part_options
from fedtrue.tasks.own_file import short_name
from fedtrue.tasks.registry import TASKS
from fedtrue.tasks.task import Task


def run(options: Namespace) -> Answer:
    use_all_cores_unless_set()
    config = config_from(options)
    if config.rounds is not None:
        check_int("rounds", config.rounds, low=1)
    return _train(config, options.out, options.json)


def resume(options: Namespace) -> Answer:
    use_all_cores_unless_set()
    out: Path = options.run
    if (out / SWEEP).exists():
        from fedtrue.commands import sweeping

        if options.rounds is not None:
            raise ValueError(f"--rounds goes further with one run: give one of the folders in {out}")
        return sweeping.run_sweep(out / SWEEP, out, options)
    if folder.is_comparison(out):
        raise ValueError(f"{out} is a comparison: the same `fedtrue compare` command goes on with it")
    folder.check_run_folder(out, "resume")
    summary, recorded = read_summary(out), read_config(out)
    rounds = _rounds_asked(options.rounds, recorded, out)
    if summary and (summary["status"] == "diverged" or summary["rounds"] >= rounds):
        return Answer(_ended_facts(out, recorded), printer(_nothing_to_do(out, summary, recorded)))
    config = replace(read_toml(out / CONFIG), rounds=rounds)
    say = stderr_printer(options.json)
    for name, length in dotted(part_options(config.method)).items():
        if rounds > recorded["rounds"] and name.endswith("learning_rate.length"):
            say(f"{name} stays {length} rounds: a run that is asked for {rounds} at once may be given another")
    return _train(config, out, options.json, resume=True)


def _rounds_asked(asked: int | None, recorded: Mapping[str, Any], out: Path) -> int:
    """Up to which round: as asked, which must not be less than before, else as the run was started."""
    before = check_int(f"{out / CONFIG}: rounds", recorded.get("rounds"), low=1)
    if asked is None:
        return before
    if asked < before:
        raise ValueError(f"--rounds {asked} is less than the {before} rounds of {out}: give at least as many")
    return asked


def _nothing_to_do(out: Path, summary: Mapping[str, Any], recorded: Mapping[str, Any]) -> str:
    after = f"after {summary['rounds']} rounds: nothing to do"
    if summary["status"] == "diverged":
        return f"{out} diverged {after}"
    further = "" if recorded.get("from_python") else f", or go further with --rounds {2 * summary['rounds']}"
    return f"{out} has ended already, {after}{further}"


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
    with shown(not quiet, rounds) as progress, Stop() as stop:
        result = train_run(
            task,
            method,
            simulation_arguments(config, task),
            HostSchedule(rounds, config.evaluate_every, config.checkpoint_every),
            Files(out, resume, config.settings()),
            start=config.start,
            callbacks=callbacks_of(config, out),
            stop=stop,
            progress=progress,
            say=say if task.source or out else stderr_printer(True),  # a toy problem needs no messages about memory
        )
    seconds = time.perf_counter() - start_time
    facts = run_facts(result.history, result.summary, seconds, out) | minimiser_facts(task, result.params)
    rows = [[name, value] for name, value in facts.items() if not isinstance(value, list | dict)]
    skipped = f", {n} of them skipped" if (n := facts.get("skipped_rounds")) else ""
    ending = ", diverged" if result.summary["status"] == "diverged" else skipped
    title = f"{short_name(config.task)}: {config.name()}, {result.summary['rounds']} rounds{ending}"
    tables = (metrics_table(title, result.summary), table("", ["", "value"], rows))
    show = printer(*tables, *exploded_lines({"": result.summary}))
    return Answer({**facts, **flat(result.summary)}, show)


def stderr_printer(quiet: bool) -> Callable[[str], None]:
    """A function that prints messages to stderr, or nothing if `quiet`."""
    console = Console(stderr=True, quiet=quiet)
    return lambda line: console.print(line, highlight=False, soft_wrap=True)


def run_facts(
    history: Mapping[str, Any], summary: Mapping[str, Any], seconds: float, out: Path | None
) -> dict[str, Any]:
    """What there is to tell of a run besides its metrics."""
    facts: dict[str, Any] = {"status": summary["status"], "rounds": len(history.get("round", []))}
    if facts["rounds"]:
        facts["dropped_clients"] = int(history["dropped"].sum())
        facts["skipped_rounds"] = int((history["clients"] == 0).sum())
        facts["steps"], facts["idle_lane_steps"] = (int(history[name].sum()) for name in ("steps", "idle_steps"))
    facts |= {name: summary[name] for name in ("epsilon", "stopped", "exploded") if name in summary}
    return {**facts, "seconds": seconds, **({"out": str(out)} if out else {})}


def minimiser_facts(task: Task, params: Any) -> dict[str, Any]:
    """How far the weights are from the minimiser, for tasks that know it."""
    if not hasattr(task, "minimiser"):
        return {}
    with np.errstate(over="ignore"):  # of weights that have diverged
        distance = float(np.linalg.norm(params - task.minimiser))
    return {"distance_from_minimiser": distance, "params": params.tolist(), "minimiser": task.minimiser.tolist()}


def _ended_facts(out: Path, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What a run that has ended answers, as if it had been trained now."""
    found, summary = load_run(out), read_outcome(out) or {}
    facts = run_facts(found.metrics, summary, 0.0, out)
    known = TASKS.get(recorded["task"])
    if known and not known.data_sets and not recorded.get("from_python"):  # others are not loaded only for an answer
        facts |= minimiser_facts(load_task(read_toml(out / CONFIG)), found.params)
    return {**facts, **flat(summary)}


def config_from(options: Namespace) -> RunConfig:
    """The settings of a TOML file or the defaults of a task, changed by the flags."""
    config = read_toml(Path(options.task)) if options.task.endswith(".toml") else RunConfig(options.task)
    flags = {name: getattr(options, name) for name in ("model", "method", *METHOD_FLAGS, *run_settings())}
    given = {name: value for name, value in flags.items() if value is not None}
    config = apply_settings(change(config, given, "command line"), options.settings)
    _refuse_ignored({**given, **parse_settings(options.settings)}, config, options.out)
    return config


def _refuse_ignored(given: Mapping[str, Any], config: RunConfig, out: Path | None) -> None:
    """Refuses settings from the command line that would have no effect."""
    for name in ("csv", "tensorboard", "checkpoint_every"):
        if name in given and out is None:
            raise ValueError(f"{name} writes into the folder of a run: add --out DIR, or leave it out")
    if "local_epochs" in given and config.local_steps is not None and not isinstance(config.local_epochs, list):
        raise ValueError(f"local_epochs is not used with local_steps = {config.local_steps}: give one of them")


def apply_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """`config` changed by every `--set KEY=VALUE`."""
    for key, value in parse_settings(settings).items():
        config = set_one(config, key, value, "--set")
    return config


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """The values of every `--set KEY=VALUE`, by key."""
    for setting in settings:
        if "=" not in setting:
            raise ValueError(f"--set takes KEY=VALUE, not {setting!r}")
    pairs = (setting.partition("=") for setting in settings)
    return {key: parse_value(text) for key, _, text in pairs}
