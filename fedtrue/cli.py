"""The command line. Thin: it parses, calls, prints."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

from fedtrue import __version__, commands
from fedtrue.names import suggestion

NOT_FLAGS = ("task", "task_options", "client", "server")  # have their own flags, or --set


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for whatever the user can put right, said in one line."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        answer = options.command(options)
    except (ValueError, OSError) as error:
        print(f"fedtrue: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(answer.data, default=_plain))
    else:
        answer.show()
    return 0


def _plain(value: Any) -> Any:
    """NumPy values as JSON's own."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


class Parser(argparse.ArgumentParser):
    """argparse, with the house's errors: one line, the nearest valid flag named."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, **settings)

    def parse_args(self, arguments: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(arguments, namespace)
        if unknown:
            flag = unknown[0].split("=")[0]
            self.error(f"{flag} is not a flag of this command{suggestion(flag, options.flags)}")
        return options

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fedtrue",
        description="Federated learning with adaptive client optimizers, corrected to head for the right answer.",
    )
    parser.add_argument("--version", action="version", version=f"fedtrue {__version__}")
    subcommands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = _command(subcommands, "run", "train a task", commands.run)
    run.add_argument("task", metavar="TASK|FILE.toml", help="a task's name (`fedtrue tasks`) or a run's TOML file")
    add_run_flags(run)

    theory = subcommands.add_parser("theory", help="the paper's Fig. 1, and fixed points", description=_THEORY)
    figures = theory.add_subparsers(title="what", required=True, metavar="WHAT")
    landscape = _command(figures, "landscape", "Fig. 1a: where each method's operator stands still", commands.landscape)
    curves = _command(
        figures, "curves", "Fig. 1b: training curves, client rate decayed at 200 and 400", commands.curves
    )
    for figure, name in ((landscape, "landscape.png"), (curves, "curves.png")):
        figure.add_argument("-o", "--out", type=Path, default=Path(name), help=f"the picture (default {name})")

    _command(subcommands, "tasks", "list the tasks", commands.list_tasks)
    _command(subcommands, "methods", "list methods and the parts they are made of", commands.list_methods)
    return parser


_THEORY = "The theory on the quadratic federation of the paper's Fig. 1, drawn."


def _command(subcommands: Any, name: str, summary: str, function: Callable[..., Any]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subcommands.add_parser(name, help=summary, description=summary.capitalize() + ".")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(command=function, flags=parser._option_string_actions)
    return parser


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """A flag a field of RunConfig, named after it; the parts have short flags, all else goes through --set."""
    from fedtrue.runner.config import RunConfig

    helps = _field_comments(RunConfig)
    everyday = parser.add_argument_group("what people change every day")
    everyday.add_argument("--client", metavar="NAME", help="client optimizer (default adagrad)")
    everyday.add_argument("--client-rate", type=float, metavar="η", help="its learning rate (default: the task's best)")
    everyday.add_argument("--server", metavar="NAME", help="server optimizer (default sgd)")
    everyday.add_argument("--server-rate", type=float, metavar="α", help="its learning rate (default: the task's best)")
    more = parser.add_argument_group("settings")
    for entry in fields(RunConfig):
        if entry.name not in NOT_FLAGS:
            flag = "--" + entry.name.replace("_", "-")
            default = "" if entry.default in (None, MISSING) else f" (default {entry.default})"
            group = everyday if entry.name in ("correction", "rounds", "seed") else more
            group.add_argument(flag, type=_value, metavar="…", help=helps.get(entry.name, "") + default)
    more.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="any other setting, e.g. --set client.epsilon=1e-5 --set task_options.noise=0.1",
    )  # fmt: skip


def _field_comments(config: type) -> dict[str, str]:
    """The comment behind each field is its help: one definition, no drift."""
    import inspect
    import re

    lines = inspect.getsource(config).splitlines()
    found = (re.match(r"    (\w+): .*?(?:#\s*(.*))?$", line) for line in lines)
    return {match[1]: match[2] or "" for match in found if match}


def _value(text: str) -> Any:
    """A flag's text as TOML would read it: numbers, lists, true; a bare `2,30` is a list, all else a string."""
    import tomllib

    for attempt in (text, f"[{text}]" if "," in text else None):
        try:
            return tomllib.loads(f"value = {attempt}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text
