"""`fedtrue tasks`, `fedtrue methods`."""

import inspect
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fedtrue.algorithm.client_update import CLIENT_STATES
from fedtrue.algorithm.methods import METHODS
from fedtrue.commands.answer import Answer, printed, table
from fedtrue.spec import FACTORIES
from fedtrue.tasks.registry import TASKS


def list_tasks(options: Namespace) -> Answer:
    rows = [{"name": name, "summary": entry.summary, "data": list(entry.data_sets)} for name, entry in TASKS.items()]
    shown = [[row["name"], row["summary"], ", ".join(row["data"]) or "none needed"] for row in rows]
    return Answer(rows, printed(table("Tasks: fedtrue run NAME", ["name", "what it is", "data"], shown)))


def list_methods(options: Namespace) -> Answer:
    named = [{"name": name, "summary": _first_line(factory)} for name, factory in METHODS.items()]
    kinds = ("client", "server", "correction", "trace", "sampling", "weighting")
    parts: dict[str, Mapping[str, Any]] = {f"--{kind}": FACTORIES[kind] for kind in kinds}
    parts["--client-state"] = CLIENT_STATES
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
