"""The command line: it parses the arguments, calls a function of `fedtrue.commands` and prints its answer."""

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fedtrue.commands.arguments import path
from fedtrue.commands.compare_flags import add_compare_flags, add_personalise_flags
from fedtrue.commands.import_flags import add_import_flags
from fedtrue.commands.os_errors import os_error_text
from fedtrue.names import suggestion
from fedtrue.runner.stop import Stopped
from fedtrue.version import __version__

MAIN_SETTINGS = ("client", "client_rate", "server", "server_rate", "correction", "rounds", "seed")

DISTRIBUTIONS = {"PIL": "pillow"}  # what pip calls a package whose import has another name

STATISTICS = (
    "Each metric has three statistics: mean_last.test.accuracy, the mean of its evaluations in the last 100 rounds; "
    "final.test.accuracy; best.test.accuracy. The bare name test.accuracy is short for the first one in --columns, "
    "--sort and --best-per. --metric, --threshold and heat maps use the first one, as the paper does."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0; 2 for a user error, explained in one line; 130 after Ctrl-C."""
    options = build_parser().parse_args(arguments)
    try:
        with short_warnings():
            answer = options.command(options)
    except (ValueError, OSError) as error:
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        print(f"fedtrue: {' '.join(text.split())}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "fedtrue":
            raise
        print(f"fedtrue: {_how_to_install(error.name.split('.')[0])}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Stopped as stopped:
        print(f"fedtrue: {stopped}", file=sys.stderr)
        return stopped.exit_code
    try:
        print(as_json(answer.data)) if options.json else answer.show()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextmanager
def short_warnings() -> Iterator[None]:
    """Warnings as one line, without a place in our code."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"fedtrue: {' '.join(str(message).split())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _how_to_install(package: str) -> str:
    """The cure where a package is missing, e.g. because an installation that only trains left out plotly."""
    return f"this command needs {package}, which is not installed: pip install {DISTRIBUTIONS.get(package, package)}"


def as_json(data: Any) -> str:
    """One JSON document; a number that is not finite is null, as JSON has no other word for it."""
    return json.dumps(_json_value(data), allow_nan=False)


def _json_value(value: Any) -> Any:
    """NumPy values, paths and numbers that are not finite as JSON's own."""
    if isinstance(value, dict):
        return {str(key): _json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _json_value(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that name the nearest valid flag."""

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
        description="Federated learning with adaptive client optimizers, corrected for client-drift bias.",
    )
    parser.add_argument("--version", action="version", version=f"fedtrue {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_training_commands(commands)
    summary = "compare methods on a task, with the same budget of learning rates for each"
    compare = _command(commands, "compare", summary, "comparing.compare")
    add_compare_flags(compare)
    _add_set_flag(compare, "--set cohort=10 --set task_options.validation=0.1")
    _add_theory_commands(commands)
    _add_data_commands(commands)
    _add_report_commands(commands)
    _add_diagnose_command(commands)
    _add_deploy_commands(commands)
    summary = "fine-tune the final model of a run per client, and show what each client gains"
    add_personalise_flags(_command(commands, "personalise", summary, "personalising.personalise_run"))
    _command(commands, "tasks", "list the tasks", "listing.list_tasks")
    methods = _command(
        commands, "methods", "list the methods, what they cost and the parts they are made of", "listing.list_methods"
    )
    methods.add_argument("--markdown", action="store_true", help="print only the table of costs, as Markdown")
    completion = _command(commands, "completion", "print the script for tab completion", "completion.completion")
    completion.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="the shell that you use")
    completion.set_defaults(parser=parser)
    return parser


def _command(commands: Any, name: str, summary: str, function: str) -> argparse.ArgumentParser:
    """A subcommand; the module of its function is imported when it is called, so that `--help` is fast."""
    description = summary[0].upper() + summary[1:] + "."
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(command=_import_later(function), flags=parser._option_string_actions)
    return parser


def _import_later(function: str) -> Callable[..., Any]:
    module, name = function.split(".")
    return lambda options: getattr(import_module(f"fedtrue.commands.{module}"), name)(options)


def _add_training_commands(commands: Any) -> None:
    run = _command(commands, "run", "train a task", "training.run")
    run.add_argument(
        "task",
        metavar="TASK|FILE",
        help="a task (see `fedtrue tasks`), the TOML file of a run, or your own task as FILE.py:NAME",
    )
    run.add_argument(
        "-o",
        "--out",
        type=path,
        metavar="DIR",
        help="new folder for settings, records, checkpoints, weights (default: none)",
    )
    add_run_flags(run)

    resume = _command(commands, "resume", "continue a run or a sweep that was interrupted", "training.resume")
    resume.add_argument("run", type=path, metavar="RUN", help="the folder of a run or of a sweep")
    resume.add_argument(
        "--rounds", type=int, metavar="INT", help="go further than the run was asked to (default: to its last round)"
    )
    sweep = _command(commands, "sweep", "train many runs, several at a time in one program", "sweeping.sweep")
    sweep.add_argument(
        "file", type=path, metavar="FILE", help="TOML file with the settings of a run and a [sweep] table"
    )
    sweep.add_argument(
        "-o",
        "--out",
        type=path,
        metavar="DIR",
        help="folder for the run folders of the cells (default: runs/ and FILE's name)",
    )
    for parser in (sweep, resume):
        flags = parser if parser is sweep else parser.add_argument_group("for sweeps only")
        flags.add_argument(
            "--at-once", type=int, metavar="INT", help="cells per program (default: as many as fit in memory)"
        )
        flags.add_argument(
            "--cells", metavar="GLOB", default="*", help="only cells with matching names, e.g. '*seed=0' (default: all)"
        )
        flags.add_argument(
            "--on",
            choices=["here", "ray"],
            default="here",
            help="train on this machine, or on the workers of a Ray cluster (default: %(default)s)",
        )
        flags.add_argument(
            "--address", metavar="TEXT", help="address of the Ray cluster (default: start one on this machine)"
        )


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """One flag per setting of a run and per common option of a method; --set takes the others."""
    from fedtrue.runner.settings import METHOD_FLAGS, parse_value, run_settings

    main_group = parser.add_argument_group("main settings")
    other_group = parser.add_argument_group("other settings")
    main_group.add_argument(
        "--model", metavar="NAME", help="a model, for tasks and imported data that have several (default: the task's)"
    )
    main_group.add_argument("--method", metavar="NAME", help="a method (see `fedtrue methods`; default fedopt)")
    for name, (metavar, text) in METHOD_FLAGS.items():
        group = main_group if name in MAIN_SETTINGS else other_group
        group.add_argument(_flag(name), type=parse_value, metavar=metavar, help=text)
    for name, entry in run_settings().items():
        group = main_group if name in MAIN_SETTINGS else other_group
        text = entry.metadata["help"]
        if entry.default is False:
            group.add_argument(_flag(name), action="store_const", const=True, help=text)
            continue
        if "default" not in text:
            text += f" (default: {'none' if entry.default is None else entry.default})"
        group.add_argument(_flag(name), type=parse_value, metavar=entry.metadata["metavar"], help=text)
    _add_set_flag(other_group)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_set_flag(parser: Any, example: str = "--set client.epsilon=1e-5 --set mu=0.1") -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help=f"any other setting or option, e.g. {example}; can be given several times",
    )


def _add_theory_commands(commands: Any) -> None:
    summary = "draw Fig. 1 and 4 of the paper"
    theory = commands.add_parser("theory", help=summary, description="Draw Fig. 1 and 4 of the paper.")
    figures = theory.add_subparsers(title="figures", required=True, metavar="FIGURE")
    landscape = _command(figures, "landscape", "Fig. 1a: the fixed point of each method", "figures.landscape")
    curves = _command(
        figures, "curves", "Fig. 1b: training curves, learning rate decayed at rounds 200 and 400", "figures.curves"
    )
    contraction = _command(figures, "contraction", "Fig. 4: how fast local steps contract", "figures.contraction")
    contraction.add_argument(
        "--single-client", action="store_true", help="use all of MNIST as one client instead of ten writers"
    )
    contraction.add_argument("--steps", type=int, metavar="INT", help="number of local steps k (default: 100)")
    contraction.add_argument(
        "--start-deviations",
        metavar="LIST",
        help="draw both starts from N(0, d²), for each d of the list (default: the model's initial weights)",
    )
    contraction.add_argument(
        "--from",
        dest="document",
        type=path,
        metavar="FILE",
        help="read the JSON document of an earlier --json instead of measuring",
    )
    for name, figure in {"landscape.png": landscape, "curves.png": curves, "contraction.png": contraction}.items():
        figure.add_argument(
            "-o", "--out", type=path, default=Path(name), metavar="FILE", help="the picture (default: %(default)s)"
        )
        figure.add_argument("--markdown", action="store_true", help="print only the table, as Markdown; no picture")


def _add_data_commands(commands: Any) -> None:
    summary = "list, download, import and show data sets"
    data = commands.add_parser("data", help=summary, description="List, download, import and show data sets.")
    actions = data.add_subparsers(title="actions", required=True, metavar="ACTION")
    _command(actions, "list", "list every task, its data sets and where they are", "data.list_data")

    get = _command(actions, "get", "download a data set; an interrupted download continues", "data.get")
    get.add_argument("name", metavar="NAME", help="a data set (see `fedtrue data list`)")

    add_import_flags(_command(actions, "import", "import a data set from files", "importing.import_data"))

    show = _command(actions, "show", "show statistics and some readable examples", "data.show")
    show.add_argument("name", metavar="TASK", help="a task (see `fedtrue tasks`)")
    show.add_argument(
        "--examples", type=int, default=3, metavar="INT", help="number of examples (default: %(default)s)"
    )
    show.add_argument(
        "-o", "--out", type=path, metavar="FILE", help="draw some examples, if they are images (default: none)"
    )
    show.add_argument(
        "--picture",
        type=path,
        metavar="FILE",
        help="draw which client holds what, as .png, .pdf or .svg (default: none)",
    )
    _add_set_flag(show, "--set task_options.seed=1")


def _add_deploy_commands(commands: Any) -> None:
    summary = "federate over a network, with Flower"
    deploy = commands.add_parser("deploy", help=summary, description="Federate over a network, with Flower.")
    actions = deploy.add_subparsers(title="actions", required=True, metavar="ACTION")
    new = _command(actions, "new", "write a complete small Flower app into a new folder", "deploying.new")
    new.add_argument("folder", type=path, metavar="DIR", help="new folder for the app")
    new.add_argument(
        "--framework",
        choices=["jax", "torch"],
        default="jax",
        help="clients from a fedtrue task, or your own loop in PyTorch (default: %(default)s)",
    )


def _add_report_commands(commands: Any) -> None:
    report = _command(
        commands, "report", "write one HTML page about runs: curves, heat maps, tables", "reporting.report"
    )
    table = _command(commands, "table", "print runs as a table for a document", "reporting.table")
    pack = _command(commands, "pack", "pack runs into archives for a repository, one per sweep", "reporting.pack")
    for parser in (report, table, pack):
        parser.add_argument(
            "runs", type=path, nargs="+", metavar="RUN", help="run folders, archives, or folders that contain them"
        )
    for parser in (report, table):
        parser.add_argument(
            "--metric", metavar="NAME", help="compare by this metric, e.g. test.accuracy (default: the first one)"
        )
        parser.add_argument(
            "--threshold",
            type=float,
            metavar="FLOAT",
            help="heat maps count the cells that reach this value, e.g. 0.2 (default: from the values)",
        )
    _add_report_flags(report)
    _add_table_flags(table)
    pack.add_argument(
        "-o",
        "--out",
        type=path,
        required=True,
        metavar="FILE|DIR",
        help="the archive NAME.runs.xz, or a folder for archives",
    )
    pack.add_argument(
        "--allow-uncommitted", action="store_true", help="also pack runs of uncommitted code, and mark them"
    )
    pack.add_argument("--only-ended", action="store_true", help="leave out runs that have not ended")
    pack.add_argument(
        "--only-evaluations",
        action="store_true",
        help="keep one line per evaluation, a tenth of the size: sums and means over the rounds since the one before",
    )


def _add_report_flags(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "-o",
        "--out",
        type=path,
        default=Path("report.html"),
        metavar="FILE",
        help="the HTML page (default: %(default)s)",
    )
    report.add_argument("--title", metavar="TEXT", help="heading of the page (default: the names of the tasks)")
    report.add_argument(
        "--pictures", type=path, metavar="DIR", help="also draw the figures into this folder (default: none)"
    )
    report.add_argument(
        "--formats",
        default="png,pdf",
        metavar="LIST",
        help="formats of the pictures: png, pdf, svg (default: %(default)s)",
    )
    report.add_argument(
        "--y-range", metavar="LOW,HIGH", help="values that curves in pictures show, e.g. 0.5,0.6 (default: all)"
    )


def _add_table_flags(table: argparse.ArgumentParser) -> None:
    table.epilog = STATISTICS
    table.add_argument(
        "--format", choices=["markdown", "csv", "latex"], default="markdown", help="(default: %(default)s)"
    )
    table.add_argument(
        "--columns", metavar="LIST", help="settings, metrics and costs (default: settings that differ, metric, costs)"
    )
    table.add_argument(
        "--sort", metavar="COLUMN", help="sort by a column, metrics best first (default: the order of the runs)"
    )
    table.add_argument(
        "--best-per",
        metavar="LIST",
        help="only the best row by --sort for each combination of these columns (default: all rows)",
    )
    table.add_argument(
        "--ranked", action="store_true", help="with --best-per: the best row first (default: the order of the runs)"
    )
    table.add_argument(
        "--target",
        type=float,
        metavar="FLOAT",
        help="show the costs until the metric reaches this value, e.g. 0.5 (default: total costs)",
    )
    table.add_argument(
        "--against",
        metavar="KEY=VALUE,…",
        help="also show differences from the row with these settings, paired by seed, with 95 %% intervals, e.g. "
        "correction=none (default: none)",
    )
    table.add_argument(
        "--where", metavar="KEY=VALUE,…", help="only runs with these settings, e.g. client.name=adam (default: all)"
    )
    table.add_argument(
        "--over",
        metavar="LIST",
        help="settings over which runs are averaged and paired, e.g. seed,task_options.split_seed (default: seed)",
    )
    table.add_argument(
        "--picture",
        type=path,
        metavar="FILE",
        help="also draw the differences from --against as PNG, PDF or SVG (default: none)",
    )
    table.add_argument("--heat-map", action="store_true", help="print tables of client rate × server rate instead")
    table.add_argument("-o", "--out", type=path, metavar="FILE", help="write to a file (default: print)")


def _add_diagnose_command(commands: Any) -> None:
    diagnose = _command(commands, "diagnose", "check a run for client-drift bias", "diagnosis.diagnose")
    diagnose.add_argument("run", type=path, metavar="RUN", help="a run folder")
    diagnose.add_argument(
        "--clients",
        type=int,
        default=100,
        metavar="INT",
        help="minimum number of clients to measure (default: %(default)s)",
    )
    diagnose.add_argument(
        "--orders", type=int, default=8, metavar="INT", help="batch orders to average over (default: %(default)s)"
    )
