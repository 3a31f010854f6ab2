"""`fedtrue tasks`, `fedtrue methods`."""

import inspect
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fedtrue.algorithm.client_update import CLIENT_STATES
from fedtrue.algorithm.methods import METHODS
from fedtrue.algorithm.upload import DESCRIPTIONS
from fedtrue.commands.answer import Answer, printer, table
from fedtrue.spec import FACTORIES
from fedtrue.tasks.registry import all_tasks

PART_KINDS = ("client", "server", "correction", "trace", "sampling", "weighting", *DESCRIPTIONS)


def list_tasks(options: Namespace) -> Answer:
    tasks = [
        {"name": name, "summary": entry.summary, "data": list(entry.data_sets)} for name, entry in all_tasks().items()
    ]
    rows = [[task["name"], task["summary"], ", ".join(task["data"]) or "none needed"] for task in tasks]
    return Answer(tasks, printer(table("Tasks: fedtrue run NAME", ["name", "description", "data"], rows)))


def list_methods(options: Namespace) -> Answer:
    methods = [{"name": name, "summary": _first_line(factory)} for name, factory in METHODS.items()]
    parts: dict[str, Mapping[str, Any]] = {f"--{kind}": FACTORIES[kind] for kind in PART_KINDS}
    parts["--client-state"] = CLIENT_STATES
    parts["--client-rate"] = FACTORIES["schedule"]
    rows = [[flag, name, _first_line(part)] for flag, choices in parts.items() for name, part in choices.items()]
    return Answer(
        methods,
        printer(
            table(
                "Methods: fedtrue run TASK --method NAME",
                ["name", "description"],
                [[method["name"], method["summary"]] for method in methods],
            ),
            table("Parts of fedopt, for other combinations", ["flag", "name", "description"], rows, grouped=True),
        ),
    )


def _first_line(part: Any) -> str:
    """The first line of a docstring, or a text as it is."""
    return part if isinstance(part, str) else (inspect.getdoc(part) or "").splitlines()[0]
