"""Fills in the settings that a run does not specify: from the task, its recommendations, or the device."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedtrue.algorithm.methods import METHODS
from fedtrue.names import look_up
from fedtrue.precision import default_precision
from fedtrue.runner.settings import RATES, RunConfig, check_names
from fedtrue.runner.warm_start import start_setting
from fedtrue.spec import FACTORIES, from_spec, option_table, part_name, part_options
from fedtrue.tasks.own_file import task_file
from fedtrue.tasks.task import Rates, Task


def resolved(config: RunConfig, task: Task) -> RunConfig:
    """The config with every setting filled in, as a run folder stores it."""
    defaults: dict[str, Any] = {
        "rounds": task.rounds,
        "cohort": task.cohort,
        "local_epochs": task.local_epochs,
        "batch_size": task.batch_size,
        "accumulate": task.accumulate if task.accumulate > 1 else None,
        "evaluation_limit": task.evaluation_limit,
        "holdout_clients": task.holdout_clients,
        "precision": usual_precision(task),
    }
    filled = {name: value for name, value in defaults.items() if getattr(config, name) is None}
    if task.spec is not None and "model" in part_options(task.spec):  # also one that the task has chosen itself
        filled["task_options"] = {**config.task_options, "model": part_options(task.spec)["model"]}
    if file := task_file(config.task):
        filled["task"] = str(file)
    return replace(
        config, method=from_spec(method_spec(config, task)).spec, start=start_setting(config.start), **filled
    )


def usual_precision(task: Task) -> str | None:
    """The precision of a run that gives none: a published task's by the device, that of an own task as it computes."""
    if task.float64:
        return None
    is_own = task.spec is None or task_file(part_name(task.spec)) is not None
    return task.precision or ("float32" if is_own else default_precision())


def method_spec(config: RunConfig, task: Task) -> dict[str, Any]:
    """The spec of the method; learning rates that are not set are those the task recommends."""
    check_names(config)
    takes = option_table(look_up("method", METHODS, config.method_name))
    options = {key: value for key, value in part_options(config.method).items() if value is not None}
    for short, part in RATES.items():
        if part in takes and short not in takes and short in options:
            options[part] = {**_table(options.get(part, {})), "learning_rate": options.pop(short)}
    named = {
        kind: {"name": takes[kind].default, **_table(options.get(kind, {}))} for kind in RATES.values() if kind in takes
    }
    best = _recommended(task, takes, options, named)
    for kind, spec in named.items():
        options[kind] = _with_rates(kind, spec, best)
    _check_rates(config.method_name, takes, options)
    return {"name": config.method_name, **options}


def _table(spec: Any) -> dict[str, Any]:
    """The spec of a part as a table."""
    return {"name": spec} if isinstance(spec, str) else dict(spec)


def _recommended(
    task: Task, takes: Mapping[str, Any], options: Mapping[str, Any], named: Mapping[str, Any]
) -> Rates | None:
    """The best known learning rates for this combination of server, client and correction."""
    if not {"client", "server", "correction"} <= set(takes):
        return None
    correction = part_name(options.get("correction", takes["correction"].default))
    return task.recommended.get((named["server"]["name"], named["client"]["name"], correction))


def _with_rates(kind: str, spec: dict[str, Any], best: Rates | None) -> dict[str, Any]:
    """The part with the recommended learning rate (and ε of the server), if none is given."""
    factory = look_up(kind, FACTORIES[kind], spec["name"])
    recommended: dict[str, Any] = {}
    if best is not None:
        recommended = {"learning_rate": best.client} if kind == "client" else {"learning_rate": best.server}
        if kind == "server" and best.server_epsilon is not None:
            recommended["epsilon"] = best.server_epsilon
    takes = option_table(factory)
    filled = {**{key: value for key, value in recommended.items() if key in takes}, **spec}
    if "learning_rate" not in filled and takes["learning_rate"].default is takes["learning_rate"].empty:
        raise ValueError(f"{kind} {spec['name']!r} has no recommended rate here: give one, e.g. --{kind}-rate 0.1")
    return filled


def _check_rates(name: str, takes: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    for short in RATES:
        if short in takes and short not in options and takes[short].default is takes[short].empty:
            flag = short.replace("_", "-")
            raise ValueError(f"method {name!r} needs a {short.replace('_', ' ')}: --{flag} 0.1")
