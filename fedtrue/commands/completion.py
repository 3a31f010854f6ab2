"""`fedtrue completion`: the script by which a shell completes commands, flags, tasks, methods and parts."""

import argparse
from argparse import Namespace
from collections.abc import Iterable, Iterator

from fedtrue.algorithm.availability import LATE
from fedtrue.algorithm.client_update import CLIENT_STATES
from fedtrue.algorithm.methods import METHODS
from fedtrue.commands.answer import Answer
from fedtrue.commands.listing import PART_KINDS
from fedtrue.precision import PRECISIONS
from fedtrue.spec import FACTORIES
from fedtrue.tasks.registry import TASKS

NAMES: dict[str, Iterable[str]] = {  # argument → what it may be; files are completed by the shell itself
    "task": TASKS,
    "method": METHODS,
    "client_state": CLIENT_STATES,
    "precision": PRECISIONS,
    "late": LATE,
    **{kind: FACTORIES[kind] for kind in PART_KINDS},
}


def completion(options: Namespace) -> Answer:
    try:
        import shtab
    except ImportError:
        raise ValueError("completion needs a package: pip install 'fedtrue[completion]'") from None
    script = shtab.complete(completed_parser(options.parser), options.shell)
    return Answer({"shell": options.shell, "script": script}, lambda: print(script))


def completed_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser with the names that its arguments may have; it is no longer used to parse."""
    for command in _parsers(parser):
        for action in command._actions:
            if action.choices is None and action.dest in NAMES:
                action.choices = list(NAMES[action.dest])
    return parser


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _parsers(child)
