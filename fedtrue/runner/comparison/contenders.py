"""Which methods are compared: names, or calls such as "fedopt(client=adam)"; those that cannot run are refused."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedtrue.algorithm.methods import METHODS
from fedtrue.engine.planning import plan_simulation
from fedtrue.runner.build import steps_of_clients
from fedtrue.runner.comparison.rates import any_rates, rates_of
from fedtrue.runner.resolve import resolved
from fedtrue.runner.settings import RunConfig
from fedtrue.spec import from_spec, option_table, part_name, part_options, read_call
from fedtrue.tasks.task import Task

BASELINE = "fedavg"  # always compared, and what the others are compared with
DEFAULT_METHODS = (
    BASELINE,
    "fedavgm",
    "fedadagrad",
    "fedadam",
    "fedopt(client=adagrad)",
    "fedopt(client=adam)",
    "fedprox",
    "scaffold",
    "mimelite",
    "fednova",
    "feddyn",
    "fedexp",
    "moments",
)
ALL = "all"
NOT_ALONE = "fedopt"  # by itself it is fedopt(client=adagrad)


class Contender(NamedTuple):
    """A method of the comparison."""

    label: str  # as it was given
    spec: dict[str, Any]  # its name and the options that were given


class Refused(NamedTuple):
    """A method that cannot run in this setting."""

    label: str
    reason: str


def contenders(methods: Sequence[str] | None = None) -> list[Contender]:
    """The methods, FedAvg first; None: DEFAULT_METHODS, ["all"]: these and all others.

    >>> [contender.label for contender in contenders(["scaffold", "fedopt(client=adam)"])]
    ['fedavg', 'scaffold', 'fedopt(client=adam)']
    """
    texts = list(DEFAULT_METHODS if methods is None else methods)
    if ALL in texts:
        others = [name for name in METHODS if name not in (*DEFAULT_METHODS, NOT_ALONE)]
        texts = [*DEFAULT_METHODS, *others, *(text for text in texts if text != ALL)]
    found = [Contender(text, _spec(text)) for text in dict.fromkeys([BASELINE, *texts])]
    built: dict[str, str] = {}
    for contender in found:
        same = built.setdefault(repr(from_spec(any_rates(contender.spec)).spec), contender.label)
        if same != contender.label:
            raise ValueError(f"{contender.label} is the same method as {same}: give one of them")
    return found


def split_methods(text: str | None) -> list[str] | None:
    """["fedavg", "fedopt(client=adam, correction=none)"]: split at commas outside parentheses."""
    if text is None:
        return None
    methods = [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    if not methods:
        raise ValueError("--methods names no method: give some, e.g. scaffold,fedprox, or leave it out for a dozen")
    return methods


def _spec(text: str) -> dict[str, Any]:
    spec = read_call(text, "method")
    table = {"name": part_name(spec), **part_options(spec)}
    from_spec(any_rates(table))  # refuses wrong names, with the nearest valid one
    return table


def cell_settings(contender: Contender, rates: dict[str, float]) -> dict[str, Any]:
    """The settings of a sweep's cell: the method with these learning rates, those as numbers that its name shows."""
    takes = option_table(METHODS[contender.spec["name"]])
    settings = {"label": contender.label, "method": contender.spec["name"], **part_options(contender.spec)}
    for kind, rate in rates_of(contender.spec).items():
        if len(rate.path) == 2:
            settings[kind] = contender.spec.get(kind, takes[kind].default)
        settings[".".join(rate.path)] = rates[kind]
    return settings


def refusal(contender: Contender, config: RunConfig, task: Task) -> Refused | None:
    """Why the method cannot run in this setting; None if it can. Nothing is trained."""
    try:
        filled = resolved(replace(config, method=any_rates(contender.spec)), task)
        steps = steps_of_clients(config, task)
        plan_simulation(task, from_spec(filled.method), cohort=filled.cohort, local_steps=steps)
    except ValueError as error:
        return Refused(contender.label, " ".join(str(error).split()))
    return None
