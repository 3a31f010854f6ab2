"""The settings of a run. The same fields are keys of TOML files and flags of the command line.

task = "shakespeare"            fedtrue run shakespeare --rounds 200 --client adagrad --client-rate 0.3
rounds = 200                        --set client.epsilon=1e-5 --set task_options.validation=0.1
method = "fedopt"
[client]
name = "adagrad"
learning_rate = 0.3

The options of the method are on the same level as the settings of the run. `resolve.py` fills in settings that are not
given, `build.py` builds task and method.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.client_update import CLIENT_STATES
from fedtrue.algorithm.methods import METHODS
from fedtrue.names import look_up, suggestion
from fedtrue.precision import PRECISIONS
from fedtrue.runner import toml
from fedtrue.runner.host_schedule import CHECKPOINT_EVERY
from fedtrue.runner.setting_types import check_option, check_table, check_type
from fedtrue.sampling import __all__ as SAMPLINGS
from fedtrue.spec import FACTORIES, check_options, option_kind, option_table, part_name, part_options, read_call
from fedtrue.tasks.own_file import file_fingerprint, task_file
from fedtrue.tasks.registry import TASKS, find_task

RATES = {
    "client_rate": "client",
    "server_rate": "server",
}  # short for a part's learning rate, if it has one
DEFAULT_METHOD = "fedopt"
AVAILABILITY = {  # settings of a run → fields of Availability
    "client_dropout": "dropout",
    "deadline": "deadline",
    "speed_spread": "speed_spread",
    "late": "late",
}
LOGGERS, STOPPING = ("tensorboard", "csv", "wandb", "mlflow"), ("early_stop", "patience")


def setting(default: Any, help: str, metavar: str) -> Any:
    """A field of RunConfig: its default, help text and metavar."""
    return field(default=default, metadata={"help": help, "metavar": metavar})


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run."""

    task: str
    task_options: Mapping[str, Any] = field(default_factory=dict)
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": DEFAULT_METHOD})  # its name and options
    rounds: int | None = setting(None, "rounds of training (default: the task's)", "INT")
    cohort: int | None = setting(None, "clients per round (default: the task's)", "INT")
    local_epochs: int | list[int] | None = setting(
        None, "passes over its data per client, or FEWEST,MOST: drawn per client (default: the task's)", "INT|LIST"
    )
    local_steps: int | list[int] | None = setting(None, "instead of epochs: one number, or one per client", "INT|LIST")
    rate_multipliers: list[float] | None = setting(None, "factors on the client learning rate, one per client", "LIST")
    batch_size: int | None = setting(None, "examples per batch (default: the task's)", "INT")
    accumulate: int | None = setting(None, "batches per local step, their gradients averaged (default: 1)", "INT")
    seed: int = setting(0, "of weights, cohorts and batches", "INT")
    start: str | None = setting(
        None, "weights to start from: a .safetensors file or a run folder (default: the task's own)", "PATH"
    )
    holdout_clients: float | None = setting(
        None, "fraction of clients that never train and are evaluated as the split `unseen` (default: none)", "FLOAT"
    )
    client_dropout: float | None = setting(None, "chance per round that a client does not reply (default: 0)", "FLOAT")
    deadline: float | None = setting(
        None, "length of a round in steps of the median client; slower clients finish fewer (default: none)", "FLOAT"
    )
    speed_spread: float | None = setting(
        None, "standard deviation of the logarithm of the clients' speeds, with --deadline (default: 0)", "FLOAT"
    )
    late: str | None = setting(
        None, "partial or drop: what is done with clients that miss the deadline (default: partial)", "NAME"
    )
    precision: str | None = setting(
        None, "float32 or bfloat16 products; weights, traces and sums stay float32 (default: by device)", "NAME"
    )
    lanes: int | None = setting(None, "clients trained in parallel per device (default: chosen)", "INT")
    dispatch: str | None = setting(
        None,
        "round, step or timed: all local steps in one program, each alone, or the faster (default: chosen)",
        "NAME",
    )
    evaluate_every: int | None = setting(None, "rounds between evaluations (default: only at the end)", "INT")
    evaluation_limit: int | None = setting(
        None, "examples of each held-out split that are evaluated (default: the task's)", "INT"
    )
    checkpoint_every: int | str = setting(CHECKPOINT_EVERY, "rounds, or seconds as 60s; with --out", "INT|SECONDS")
    early_stop: str | None = setting(
        None, "stop when this metric no longer improves, e.g. test.accuracy; with --evaluate-every", "NAME"
    )
    patience: int | None = setting(None, "evaluations without an improvement before --early-stop (default: 5)", "INT")
    tensorboard: bool = setting(False, "write event files too; with --out", "")
    csv: bool = setting(False, "write metrics.csv too; with --out", "")
    wandb: str | None = setting(None, "log to this project of Weights & Biases (default: none)", "NAME")
    mlflow: str | None = setting(None, "log to this experiment of MLflow (default: none)", "NAME")
    label: str | None = setting(None, "what the run is called in tables and curves", "TEXT")
    reference: float | None = setting(None, "the published number for this run, shown next to ours", "FLOAT")

    @property
    def method_name(self) -> str:
        return part_name(self.method)

    def name(self) -> str:
        """A short name for tables: the label, else the method or its main parts."""
        if self.label:
            return self.label
        options = part_options(self.method)
        if self.method_name == DEFAULT_METHOD and "client" in options and "correction" in options:
            return f"{part_name(options['client'])} + {part_name(options['correction'])}"
        return self.method_name

    def settings(self) -> dict[str, Any]:
        """The settings as the table of a TOML file; `from_table` is the inverse."""
        table = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        method = {"method": self.method_name, **part_options(self.method)}
        return {
            "task": table.pop("task"),
            "task_options": table.pop("task_options"),
            **method,
            **_without_method(table),
        }


def _without_method(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "method"}


def _choice(option: str, names: Iterable[str], note: str = "") -> tuple[str, str]:
    """Metavar and help of an option of `fedopt` that is one of these names."""
    *first, last = names
    default = option_table(METHODS[DEFAULT_METHOD])[option].default or "the task's"
    return "NAME", f"{', '.join(first)} or {last}{note} (default: {default})"


METHOD_FLAGS = {  # options of the method that have a flag: metavar and help
    "client": ("NAME", "client optimizer (default adagrad)"),
    "client_rate": (
        "FLOAT|SCHEDULE",
        "its learning rate; over the rounds as 'cosine(0.1, length=500)' (default: the task's recommendation)",
    ),
    "server": ("NAME", "server optimizer (default sgd)"),
    "server_rate": ("FLOAT|SCHEDULE", "its learning rate, as for the client (default: the task's recommendation)"),
    "correction": _choice("correction", FACTORIES["correction"]),
    "trace": _choice("trace", FACTORIES["trace"]),
    "client_state": _choice("client_state", CLIENT_STATES),
    "sampling": _choice("sampling", SAMPLINGS, ", with options as 'cyclic(groups=4)'"),
    "weighting": _choice("weighting", FACTORIES["weighting"]),
    "compression": ("NAME", "of what clients send, e.g. 'top_k(share=0.01)', 'qsgd(levels=16)', sign (default: none)"),
    "aggregator": ("NAME", "mean, median, 'trimmed_mean(share=0.1)' or 'krum(hostile=1)' (default: mean)"),
    "privacy": ("NAME", "clipping and noise, e.g. 'gaussian(clip=0.1, noise=1)' (default: none)"),
    "attack": ("NAME", "hostile clients, e.g. 'scaled(share=0.2, factor=-1)' (default: none)"),
}


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"client": {"name": "sgd"}} → {"client.name": "sgd"}; None is left out."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return {key: value for key, value in found.items() if value is not None}


def availability_settings(availability: Availability | None) -> dict[str, Any]:
    """The settings of a run with this availability; what has its default value is left out."""
    usual = Availability()
    values = {key: getattr(availability or usual, name) for key, name in AVAILABILITY.items()}
    return {key: value for key, value in values.items() if value != getattr(usual, AVAILABILITY[key])}


def availability_of(config: RunConfig) -> Availability | None:
    """The inverse of `availability_settings`; None: every client replies in time."""
    given = {name: getattr(config, key) for key, name in AVAILABILITY.items() if getattr(config, key) is not None}
    return Availability(**given) if given else None


def run_settings() -> dict[str, Any]:
    """The fields that are settings of the run, not of its task or method; by name."""
    return {entry.name: entry for entry in fields(RunConfig) if entry.default is not MISSING}


def method_settings() -> list[str]:
    """Every option of any method."""
    return list(
        dict.fromkeys([*METHOD_FLAGS, *(name for factory in METHODS.values() for name in option_table(factory))])
    )


def check_names(config: RunConfig) -> None:
    """Refuses wrong names and options, before any data is opened."""
    if task_file(config.task):
        file_fingerprint(config.task)  # refuses a file that does not exist
    else:
        find_task(config.task)
    availability_of(config)  # refuses wrong values
    if config.patience is not None and config.early_stop is None:
        raise ValueError("patience needs early_stop: give a metric, e.g. --early-stop test.accuracy")
    if config.precision is not None:
        look_up("precision", PRECISIONS, config.precision)
    factory = look_up("method", METHODS, config.method_name)
    if clash := run_settings().keys() & option_table(factory).keys():
        raise ValueError(f"method {config.method_name!r} calls an option as runs call a setting: rename {min(clash)!r}")
    options = part_options(config.method)
    takes = {short for short, part in RATES.items() if part in option_table(factory)}
    check_options("method", config.method_name, {key: value for key, value in options.items() if key not in takes})
    for option, value in options.items():
        if (kind := option_kind(option)) and _has_name(value):
            look_up(kind, FACTORIES[kind], part_name(value))


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
        raise ValueError(
            f"{where} was written by a Python program and cannot be rebuilt, as some of its parts have no name: "
            "run that program again"
        )
    if "task" not in table:
        raise ValueError(f'{where} names no task: add task = "shakespeare" (or another of: {", ".join(TASKS)})')
    return change(RunConfig(check_type(where, "task", table["task"], str)), settings, where)


def change(config: RunConfig, values: Mapping[str, Any], where: str) -> RunConfig:
    """`config` with some settings replaced; unknown keys are refused with the nearest valid one."""
    _refuse_two_rates(values, where)
    for key, value in values.items():
        if key == "method":
            config = replace(config, method={**config.method, "name": check_type(where, key, value, str)})
        elif key == "task_options":
            options = check_table(where, key, value, "task_options = { seed = 1 }")
            config = replace(config, task_options={**config.task_options, **options})
        elif key == "model":  # short for an option of the task
            model = change_part(config.task_options.get("model"), value, "model")
            config = replace(config, task_options={**config.task_options, "model": model})
        elif key in run_settings():
            hint = get_type_hints(RunConfig)[key]
            config = replace(config, **{key: check_type(where, key, value, hint)})
        elif key in method_settings():
            check_option(where, key, value)
            config = replace(config, method=_change_option(config.method, key, value))
        elif key == "task":
            raise ValueError(f"{where}: a task is given once: first in the command, or at the top of the file")
        else:
            valid = ["task", "model", "method", "task_options", *method_settings(), *run_settings()]
            raise ValueError(
                f"{where}: {key!r} is not a setting{suggestion(key, valid)}; there are: {', '.join(valid)}"
            )
    return config


def _refuse_two_rates(values: Mapping[str, Any], where: str) -> None:
    """A part that is given with its learning rate, and that rate once more."""
    for short, part in RATES.items():
        given = read_call(values.get(part), part)
        if values.get(short) is not None and isinstance(given, Mapping) and "learning_rate" in given:
            rates = f"{given['learning_rate']} as an option of {part}, {values[short]} as {short}"
            raise ValueError(f"{where}: the {part}'s learning rate is given twice, {rates}: leave out one of them")


def set_one(config: RunConfig, key: str, value: Any, where: str) -> RunConfig:
    """`config` with one setting replaced, a part's as `client.epsilon` or `client.learning_rate.length`."""
    first, *rest = key.split(".")
    for name in reversed(rest):
        value = {name: value}
    return change(config, {first: value}, where)


def _change_option(method: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The method with one option replaced. `client_rate` and the client's `learning_rate` replace each other."""
    changed = dict(method)
    part = RATES.get(key)
    if part and isinstance(changed.get(part), Mapping) and "learning_rate" in changed[part]:
        changed[key] = changed[part]["learning_rate"]
        changed[part] = {name: entry for name, entry in changed[part].items() if name != "learning_rate"}
    for rate, owner in RATES.items():
        if key == owner and isinstance(value, Mapping) and "learning_rate" in value and rate in changed:
            changed[owner] = change_part(changed.get(owner), {"learning_rate": changed.pop(rate)}, owner)
    kind = option_kind(key)
    changed[key] = change_part(changed.get(key), value, kind) if kind else value
    return changed


def change_part(old: Any, new: Any, kind: str) -> Any:
    """A new name replaces the part with its options; a table changes its name or some options, also of parts in it."""
    new = read_call(new, kind) if kind in FACTORIES else new
    if not isinstance(new, str | Mapping):  # None, or a number in the place of a schedule
        return new
    options = dict(old) if isinstance(old, Mapping) else {"name": old} if isinstance(old, str) else {}
    table = {"name": new} if isinstance(new, str) else dict(new)
    same_part = table.get("name", options.get("name")) == options.get("name")
    changed = options if same_part else {}
    for option, value in table.items():
        part = option_kind(option)
        if part and isinstance(value, Mapping) and "name" not in value and not _has_name(changed.get(option)):
            raise ValueError(
                f"{changed.get('name', kind)} has no {option}.{next(iter(value), '')}: {option} is not a {part} with a "
                f"name; give it one, e.g. {option}.name = {next(iter(FACTORIES[part]))!r}"
            )
        changed[option] = change_part(changed.get(option), value, part) if part else value
    return changed["name"] if set(changed) == {"name"} else changed


def _has_name(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and "name" in part)


def parse_value(text: str) -> Any:
    """The value of a flag, parsed as TOML: numbers, lists, true; `2,30` is a list, anything else a string."""
    for attempt in (text, f"[{text}]" if "," in text else None):
        try:
            return tomllib.loads(f"value = {attempt}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text
