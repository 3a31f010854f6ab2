"""`fedtrue tasks`, `fedtrue methods`."""

import inspect
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fedtrue.algorithm.client_update import CLIENT_STATES
from fedtrue.algorithm.methods import METHODS
from fedtrue.algorithm.upload import DESCRIPTIONS
from fedtrue.commands.answer import Answer, printer, table
from fedtrue.engine.costs import Costs, costs_of
from fedtrue.reports.table_formats import markdown_table
from fedtrue.runner.comparison.rates import any_rates
from fedtrue.spec import FACTORIES, from_spec
from fedtrue.tasks.registry import all_tasks

COSTS_TITLE = "Costs per client and round, in multiples of the model"
COST_COLUMNS = ["name", "up", "down", "gradients per step", "client keeps", "client holds", "server keeps"]
COSTS_NOTE = """With default parts, single numbers not counted. 1 + 2: a round of two phases.
Clients keep memory between rounds, and hold weights, states and a gradient
while they train."""
PART_KINDS = ("client", "server", "correction", "trace", "sampling", "weighting", *DESCRIPTIONS)


def list_tasks(options: Namespace) -> Answer:
    tasks = [
        {"name": name, "summary": entry.summary, "data": list(entry.data_sets)} for name, entry in all_tasks().items()
    ]
    rows = [[task["name"], task["summary"], ", ".join(task["data"]) or "none needed"] for task in tasks]
    return Answer(tasks, printer(table("Tasks: fedtrue run NAME", ["name", "description", "data"], rows)))


def list_methods(options: Namespace) -> Answer:
    costs = {name: costs_of(from_spec(any_rates({"name": name}))) for name in METHODS}
    methods = [
        {"name": name, "summary": _first_line(factory), "costs": costs[name]._asdict()}
        for name, factory in METHODS.items()
    ]
    parts: dict[str, Mapping[str, Any]] = {f"--{kind}": FACTORIES[kind] for kind in PART_KINDS}
    parts["--client-state"] = CLIENT_STATES
    parts["--client-rate"] = FACTORIES["schedule"]
    rows = [[flag, name, _first_line(part)] for flag, choices in parts.items() for name, part in choices.items()]
    if options.markdown:
        return Answer(methods, lambda: _print_markdown(costs))
    return Answer(
        methods,
        printer(
            table(
                "Methods: fedtrue run TASK --method NAME",
                ["name", "description"],
                [[method["name"], method["summary"]] for method in methods],
            ),
            table(COSTS_TITLE, COST_COLUMNS, [_cost_row(name, of) for name, of in costs.items()]),
            COSTS_NOTE,
            table("Parts of fedopt, for other combinations", ["flag", "name", "description"], rows, grouped=True),
        ),
    )


def _cost_row(name: str, costs: Costs) -> list[str]:
    per_phase = [" + ".join(f"{part:g}" for part in parts) for parts in (costs.up, costs.down, costs.gradients)]
    return [name, *per_phase, *(f"{size:g}" for size in (costs.kept, costs.held, costs.server))]


def _print_markdown(costs: Mapping[str, Costs]) -> None:
    """The costs as a table for a document, with what a method needs of its clients."""
    needs = lambda of: "all in every round" if of.needs_all_clients else "those that come back" if of.kept else "any"
    rows = [[*_cost_row(name, of), needs(of)] for name, of in costs.items()]
    sys.stdout.write(markdown_table([*COST_COLUMNS, "clients"], [False] * (len(COST_COLUMNS) + 1), rows))


def _first_line(part: Any) -> str:
    """The first line of a docstring, or a text as it is."""
    return part if isinstance(part, str) else (inspect.getdoc(part) or "").splitlines()[0]
