"""A run as frozen data: the same fields are the TOML's keys and the command line's flags.

task = "shakespeare"            fedtrue run shakespeare --rounds 200 --client adagrad --client-rate 0.3
rounds = 200                        --set client.epsilon=1e-5 --set task_options.dtype=bfloat16
[client]
name = "adagrad"
learning_rate = 0.3
"""

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.checks import whole
from fedtrue.algorithm.client_optimizer import CLIENT_OPTIMIZERS
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.algorithm.methods import METHODS
from fedtrue.algorithm.server_optimizer import SERVER_OPTIMIZERS
from fedtrue.data.batches import steps_per_epoch
from fedtrue.names import look_up, suggestion
from fedtrue.runner import toml
from fedtrue.runner.pauses import CHECKPOINT_EVERY
from fedtrue.tasks.registry import TASKS
from fedtrue.tasks.task import Task

NOT_FLAGS = ("task", "task_options", "client", "server")  # have flags of their own, or --set


DRAWN = 0  # the seed of the clients' own numbers of epochs: a property of the federation, not of a run
PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def by_device() -> str:
    """bfloat16 products on accelerators, float32 on CPUs, where bfloat16 is slower."""
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


@dataclass(frozen=True)
class Part:
    """A named part and what it is called with; rates left out come from the task's recommendations."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, kind: str, table: Mapping[str, Callable[..., Any]], **defaults: Any) -> Any:
        """`table[name](**options)`."""
        return look_up(kind, table, self.name)(**self.filled(kind, table, **defaults).options)

    def filled(self, kind: str, table: Mapping[str, Callable[..., Any]], **defaults: Any) -> "Part":
        """With every option spelled out; one the part does not have is refused with the nearest it has."""
        factory = look_up(kind, table, self.name)
        valid = [name for name, p in inspect.signature(factory).parameters.items() if p.kind != p.VAR_KEYWORD]
        for option in self.options:
            if option not in valid:
                near = suggestion(option, valid)
                raise ValueError(f"{kind} {self.name!r} has no option {option!r}{near}; it has: {', '.join(valid)}")
        known = {name: value for name, value in defaults.items() if name in valid and value is not None}
        usual = {name: p.default for name, p in inspect.signature(factory).parameters.items() if p.default != p.empty}
        arguments = {**usual, **known, **self.options}
        if "learning_rate" in valid and "learning_rate" not in arguments:
            raise ValueError(f"{kind} {self.name!r} has no recommended rate here: give one, e.g. --{kind}-rate 0.1")
        return Part(self.name, arguments)


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on."""

    task: str
    task_options: Mapping[str, Any] = field(default_factory=dict)
    method: str | None = None  # a named method; else fedopt from the parts below
    client: Part = Part("adagrad")
    server: Part = Part("sgd")
    correction: str = "joint"  # none, local, joint
    trace: str = "exact"  # exact, paper
    client_state: str = "restart"  # restart, sync, inherit
    sampling: str = "uniform"  # uniform, by_size
    weighting: str | None = None  # uniform, examples, tokens; else what the task says
    rounds: int | None = None  # else the task's
    cohort: int | None = None  # clients a round; else the task's
    local_epochs: int | list[int] | None = None  # or fewest,most: each client its own, drawn once; else the task's
    local_steps: int | list[int] | None = None  # instead of epochs: one number, or one a client
    rate_multipliers: list[float] | None = None  # one a client
    batch_size: int | None = None  # else the task's
    seed: int = 0
    precision: str | None = None  # float32 or bfloat16 products (weights, traces, sums stay float32); else by device
    lanes: int | None = None  # clients trained side by side on a device; else chosen
    evaluate_every: int | None = None  # rounds; else only at the end
    evaluation_limit: int | None = None  # examples of each held-out split that are evaluated; else the task's
    checkpoint_every: int | str = CHECKPOINT_EVERY  # rounds, or seconds as 60s; with --out
    tensorboard: bool = False  # event files too; with --out
    label: str | None = None  # what the run is called in tables and curves
    paper: float | None = None  # what the paper printed for it, shown beside ours

    def load_task(self) -> Task:
        """The task, its settings replaced by this run's."""
        entry = look_up("task", TASKS, self.task)
        dtype = look_up("precision", PRECISIONS, self.precision or by_device())
        task = Part(self.task, self.task_options).build("task", {self.task: entry.factory}, dtype=dtype)
        ours: dict[str, Any] = {
            "local_epochs": self.local_epochs,
            "batch_size": self.batch_size,
            "evaluation_limit": self.evaluation_limit,
        }
        ours = {name: value for name, value in ours.items() if isinstance(value, int)}
        for name, value in ours.items():
            whole(name, value, low=1)
        return replace(task, **ours)

    def steps_of_clients(self, task: Task) -> int | list[int] | None:
        """`local_steps`, or those of each client's own number of epochs; None: the task's epochs for everyone."""
        if not isinstance(self.local_epochs, list):
            return self.local_steps
        fewest, most = self.local_epochs if len(self.local_epochs) == 2 else (0, 0)
        if not 1 <= fewest <= most:
            raise ValueError(f"local_epochs takes a number or fewest,most, e.g. 1,20, not {self.local_epochs}")
        if self.local_steps is not None:
            raise ValueError("local_steps and a range of local_epochs exclude each other: give one of them")
        drawn = np.random.default_rng(DRAWN).integers(fewest, most, size=len(task.train), endpoint=True)
        return (drawn * steps_per_epoch(task.train.sizes, task.batch_size)).tolist()

    def resolved(self, task: Task) -> "RunConfig":
        """Every choice left to the task, the device or a default, spelled out: what a run folder keeps."""
        left: dict[str, Any] = {
            "rounds": task.rounds,
            "cohort": task.cohort,
            "local_epochs": task.local_epochs,
            "batch_size": task.batch_size,
            "precision": by_device(),
        }
        config = replace(self, **{name: value for name, value in left.items() if getattr(self, name) is None})
        if self.method is not None:
            return config
        best = task.recommended.get((self.server.name, self.client.name, self.correction))
        client = self.client.filled("client", CLIENT_OPTIMIZERS, learning_rate=best.client if best else None)
        server = self.server.filled(
            "server",
            SERVER_OPTIMIZERS,
            learning_rate=best.server if best else 1.0 if self.server.name == "sgd" else None,
            epsilon=best.server_epsilon if best else None,
        )
        return replace(config, client=client, server=server)

    def build_method(self, task: Task) -> Method:
        """The method, rates left out taken from the task's recommendations."""
        around: dict[str, Any] = {
            "client_state": self.client_state,
            "sampling": self.sampling,
            "weighting": self.weighting,
        }
        if self.method is not None:
            rates = {"client_rate": self.client.options.get("learning_rate")}
            if "learning_rate" in self.server.options:
                rates["server_rate"] = self.server.options["learning_rate"]
            if rates["client_rate"] is None:
                raise ValueError(f"method {self.method!r} needs a client rate: --client-rate 0.1")
            return look_up("method", METHODS, self.method)(**rates, trace=self.trace, **around)
        parts = self.resolved(task)
        client = parts.client.build("client", CLIENT_OPTIMIZERS)
        server = parts.server.build("server", SERVER_OPTIMIZERS)
        return fedopt(client, server, self.correction, self.trace, **around)

    def name(self) -> str:
        """In a few words."""
        return self.label or self.method or f"{self.client.name} + {self.correction}"

    def simulation(self, task: Task) -> dict[str, Any]:
        """What `Simulation` takes of these settings."""
        names = ("cohort", "rate_multipliers", "seed", "lanes")
        return {**{name: getattr(self, name) for name in names}, "local_steps": self.steps_of_clients(task)}

    def training(self, task: Task) -> dict[str, Any]:
        """What `train` takes of these settings."""
        names = ("evaluate_every", "checkpoint_every", "tensorboard")
        return {**self.simulation(task), **{name: getattr(self, name) for name in names}}

    def settings(self) -> dict[str, Any]:
        """As a TOML file has them; `read_toml` is the way back."""
        table = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            name: {"name": value.name, **value.options} if isinstance(value, Part) else value
            for name, value in table.items()
        }


def check_names(config: RunConfig) -> None:
    """Wrong names are refused before any data is opened."""
    look_up("task", TASKS, config.task)
    if config.precision is not None:
        look_up("precision", PRECISIONS, config.precision)
    if config.method is not None:
        look_up("method", METHODS, config.method)
    look_up("client", CLIENT_OPTIMIZERS, config.client.name)
    look_up("server", SERVER_OPTIMIZERS, config.server.name)
    fedopt(CLIENT_OPTIMIZERS["sgd"](1.0), None, config.correction, config.trace, config.client_state, config.sampling)


def read_toml(path: Path) -> RunConfig:
    """A run from a TOML file."""
    table = toml.read(path, "a task's name or a TOML file")
    if "sweep" in table:
        raise ValueError(f"{path} is a sweep: fedtrue sweep {path}")
    return from_table(table, str(path))


def from_table(table: Mapping[str, Any], where: str) -> RunConfig:
    """A run from a TOML file's contents."""
    settings = {key: value for key, value in table.items() if key not in ("task", "origin")}
    if settings.get("from_python"):
        raise ValueError(f"{where} was written by a Python program: run that again, with ft.train(…, resume=True)")
    if "task" not in table:
        raise ValueError(f'{where} names no task: add task = "shakespeare" (or another of: {", ".join(TASKS)})')
    return change(RunConfig(table["task"]), settings, where)


def change(config: RunConfig, values: Mapping[str, Any], where: str) -> RunConfig:
    """`config` with some fields replaced; unknown keys are refused with the nearest valid one."""
    valid = [f.name for f in fields(RunConfig)]
    for key, value in values.items():
        if key not in valid:
            raise ValueError(
                f"{where}: {key!r} is not a setting{suggestion(key, valid)}; there are: {', '.join(valid)}"
            )
        old = getattr(config, key)
        if isinstance(old, Part):
            value = _change_part(old, value)
        elif isinstance(old, Mapping):
            value = {**old, **value}
        else:
            _check_type(where, key, value)
        config = replace(config, **{key: value})
    return config


def set_one(config: RunConfig, key: str, value: Any, where: str) -> RunConfig:
    """`config` with one setting replaced, a part's as `client.epsilon`."""
    first, _, rest = key.partition(".")
    return change(config, {first: {rest: value} if rest else value}, where)


def _check_type(where: str, key: str, value: Any) -> None:
    """Refuses a value that the field's annotation does not allow."""
    hint = get_type_hints(RunConfig)[key]
    choices = get_args(hint) or (hint,)
    for choice in choices:
        inner = get_args(choice)
        if inner and isinstance(value, list) and all(isinstance(entry, _accepted(inner[0])) for entry in value):
            return
        if not inner and isinstance(value, _accepted(choice)) and (choice is bool or not isinstance(value, bool)):
            return
    named = " or ".join(getattr(choice, "__name__", str(choice)) for choice in choices if choice is not type(None))
    raise ValueError(f"{where}: {key} takes {named}, not {value!r}")


def _accepted(kind: type) -> Any:
    return int | float if kind is float else kind


def _change_part(part: Part, value: Any) -> Part:
    """A name replaces the part (its options belong to the old one); a table changes name or options."""
    if isinstance(value, str):
        return part if value == part.name else Part(value)
    options = {key: entry for key, entry in value.items() if key != "name"}
    part = _change_part(part, value["name"]) if "name" in value else part
    return Part(part.name, {**part.options, **options})


def parse_value(text: str) -> Any:
    """A flag's text as TOML would read it: numbers, lists, true; a bare `2,30` is a list, all else a string."""
    for attempt in (text, f"[{text}]" if "," in text else None):
        try:
            return tomllib.loads(f"value = {attempt}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text
