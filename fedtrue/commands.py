"""What each command does: it returns an Answer, which is printed as a table or as JSON."""

import inspect
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


@dataclass(frozen=True)
class Answer:
    """The JSON document, and how a person reads it."""

    data: Any
    show: Callable[[], None]


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A rich table; numbers to the right."""
    result = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in rows)
        result.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        result.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row))
    return result


def printed(*parts: Any) -> Callable[[], None]:
    return lambda: Console(soft_wrap=True).print(*parts, sep="\n")


class RoundsBar:
    """A progress bar with rounds per second and time left; silent when not a terminal."""

    def __init__(self, total: int):
        self.console = Console(stderr=True)
        self.began, self.total = time.perf_counter(), total
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.line = self.bar.add_task("rounds", total=total, speed="compiling", latest="")

    def __enter__(self) -> "RoundsBar":
        self.bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.bar.stop()

    def __call__(self, done: int, total: int, latest: Mapping[str, float]) -> None:
        speed = f"{done / (time.perf_counter() - self.began):.3g} rounds/s"
        said = "  ".join(f"{name} {value:.4g}" for name, value in latest.items())
        self.bar.update(self.line, completed=done, speed=speed, latest=said)


def run(options: Namespace) -> Answer:
    from fedtrue.runner.config import check_names
    from fedtrue.runner.train import train

    config = config_from(options)
    check_names(config)
    task = config.load_task()
    method = config.build_method(task)
    rounds = config.rounds if config.rounds is not None else task.rounds
    if task.source and not options.json:
        Console(stderr=True).print(f"data: {task.source}", highlight=False)
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
        )
    found = outcome(task, result)
    found["seconds"] = time.perf_counter() - began
    rows = [[name, value] for name, value in found.items() if not isinstance(value, list | dict)]
    title = f"{config.task}: {config.method or config.client.name + ' + ' + config.correction}, {rounds} rounds"
    return Answer(found, printed(table(title, ["", "value"], rows)))


def outcome(task: Any, result: Any) -> dict[str, Any]:
    """What a run found, in names and numbers."""
    import numpy as np

    found: dict[str, Any] = {"rounds": len(result.history.get("round", []))}
    if found["rounds"]:
        found["train_loss"] = float(result.history["loss"][-1])
        found["dropped_clients"] = int(result.history["dropped"].sum())
        found["skipped_rounds"] = int((result.history["clients"] == 0).sum())
    if hasattr(task, "minimiser"):
        found["distance_from_minimiser"] = float(np.linalg.norm(result.params - task.minimiser))
        found["params"], found["minimiser"] = result.params.tolist(), task.minimiser.tolist()
    for split, metrics in (result.evaluations[-1]["metrics"] if result.evaluations else {}).items():
        found.update({f"{split}_{name}": value for name, value in metrics.items()})
    return found


def config_from(options: Namespace) -> Any:
    """The run a command line asks for: a TOML file or a task's name, changed by the flags."""
    from fedtrue.cli import NOT_FLAGS, _value
    from fedtrue.runner.config import RunConfig, change, read_toml

    config = read_toml(Path(options.task)) if options.task.endswith(".toml") else RunConfig(options.task)
    flags = {f.name: getattr(options, f.name) for f in fields(RunConfig) if f.name not in NOT_FLAGS}
    config = change(config, {key: value for key, value in flags.items() if value is not None}, "command line")
    for part in ("client", "server"):
        name, rate = getattr(options, part), getattr(options, f"{part}_rate")
        chosen = ({"name": name} if name else {}) | ({"learning_rate": rate} if rate is not None else {})
        config = change(config, {part: chosen}, "command line")
    for setting in options.settings:
        key, found, text = setting.partition("=")
        if not found:
            raise ValueError(f"--set takes KEY=VALUE, not {setting!r}")
        first, _, rest = key.partition(".")
        config = change(config, {first: {rest: _value(text)} if rest else _value(text)}, "--set")
    return config


def landscape(options: Namespace) -> Answer:
    from fedtrue.report import figure_1

    return _figure("Fig. 1a", figure_1.landscape, options.out)


def curves(options: Namespace) -> Answer:
    from fedtrue.report import figure_1

    return _figure("Fig. 1b", figure_1.curves, options.out)


def _figure(title: str, draw: Callable[[Path], Any], path: Path) -> Answer:
    data = draw(path)
    rows = [[row["method"], *row["numbers"].values()] for row in data["rows"]]
    columns = ["method", *data["rows"][0]["numbers"]]
    return Answer({**data, "picture": str(path)}, printed(table(title, columns, rows), f"picture: {path}"))


def list_tasks(options: Namespace) -> Answer:
    from fedtrue.tasks.registry import TASKS

    rows = [{"name": name, "summary": entry.summary, "data": list(entry.data_sets)} for name, entry in TASKS.items()]
    shown = [[row["name"], row["summary"], ", ".join(row["data"]) or "none needed"] for row in rows]
    return Answer(rows, printed(table("Tasks: fedtrue run NAME", ["name", "what it is", "data"], shown)))


def list_methods(options: Namespace) -> Answer:
    from fedtrue.algorithm import client_optimizer, correction, method, methods, sampling, server_optimizer, trace

    named = [{"name": name, "summary": _first_line(factory)} for name, factory in methods.METHODS.items()]
    parts: dict[str, Mapping[str, Any]] = {
        "--client": client_optimizer.CLIENT_OPTIMIZERS,
        "--server": server_optimizer.SERVER_OPTIMIZERS,
        "--correction": correction.CORRECTIONS,
        "--trace": trace.TRACES,
        "--client-state": method.CLIENT_STATES,
        "--sampling": sampling.SAMPLINGS,
        "--weighting": method.WEIGHTINGS,
    }
    rows = [[flag, name, _first_line(part)] for flag, choices in parts.items() for name, part in choices.items()]
    return Answer(
        named,
        printed(
            table("Methods: fedtrue run TASK --method NAME", ["name", "what it is"], [list(n.values()) for n in named]),
            table("Parts, for any other combination", ["flag", "name", "what it does"], rows),
        ),
    )


def _first_line(part: Any) -> str:
    return part if isinstance(part, str) else (inspect.getdoc(part) or "").splitlines()[0]
