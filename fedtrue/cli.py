"""The command line. Thin: it parses, calls, prints."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fedtrue.names import suggestion
from fedtrue.runner.stop import Stopped
from fedtrue.version import __version__

OFTEN_USED = ("client", "client_rate", "server", "server_rate", "correction", "rounds", "seed")

STATISTICS = (
    "Of a metric --columns, --sort and --winners know three statistics: mean_last.test.accuracy, the mean of its "
    "evaluations in the last 100 rounds; final.test.accuracy; best.test.accuracy. The bare name test.accuracy is short "
    "for the first, by which the paper compares; so are runs in --metric, --threshold and the heat maps."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 for whatever the user can put right, said in one line; 130 for Ctrl-C."""
    options = build_parser().parse_args(arguments)
    try:
        answer = options.command(options)
    except (ValueError, OSError) as error:
        print(f"fedtrue: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Stopped as stopped:
        print(f"fedtrue: {stopped}", file=sys.stderr)
        return stopped.exit_code
    if options.json:
        print(as_json(answer.data))
    else:
        answer.show()
    return 0


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
    """argparse with errors of one line that name the nearest valid flag."""

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
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = _command(commands, "run", "train a task", "training.run")
    run.add_argument("task", metavar="TASK|FILE.toml", help="a task's name (`fedtrue tasks`) or a run's TOML file")
    run.add_argument("--out", type=Path, metavar="DIR", help="a new folder for settings, records, checkpoints, weights")
    add_run_flags(run)
    resume = _command(commands, "resume", "go on with a run that was stopped or killed", "training.resume")
    resume.add_argument("run", type=Path, metavar="RUN", help="the folder of a run or a sweep")
    sweep = _command(commands, "sweep", "train many runs, those that can together", "sweeping.sweep")
    sweep.add_argument("file", type=Path, metavar="FILE.toml", help="a run's settings and a [sweep] table")
    sweep.add_argument("--out", type=Path, metavar="DIR", help="where the cells' run folders go (default runs/FILE)")
    for several in (sweep, resume):
        several.add_argument("--at-once", type=int, metavar="N", help="cells in one program (default: as many as fit)")
        several.add_argument("--cells", metavar="GLOB", default="*", help="only those of this name, e.g. '*seed=0'")
        several.add_argument("--on", choices=["here", "ray"], default="here", help="ray: over the workers of a cluster")
        several.add_argument("--address", help="the Ray cluster's (default: one is started on this machine)")

    theory = commands.add_parser("theory", help="the paper's Fig. 1 and 4", description="Draws Fig. 1 and 4.")
    figures = theory.add_subparsers(title="what", required=True, metavar="WHAT")
    landscape = _command(figures, "landscape", "Fig. 1a: the fixed point of each method", "figures.landscape")
    curves = _command(figures, "curves", "Fig. 1b: training curves, rate decayed at 200 and 400", "figures.curves")
    contraction = _command(figures, "contraction", "Fig. 4: how fast local steps contract", "figures.contraction")
    contraction.add_argument("--single-client", action="store_true", help="all of MNIST as one client, not ten writers")
    contraction.add_argument("--steps", type=int, metavar="INT", help="local steps k (default 100)")
    earlier = "read what --json printed instead of measuring"
    contraction.add_argument("--from", dest="document", type=Path, metavar="FILE.json", help=earlier)
    drawn = {"landscape.png": landscape, "curves.png": curves, "contraction.png": contraction}
    for name, figure in drawn.items():
        figure.add_argument("-o", "--out", type=Path, default=Path(name), help=f"the picture (default {name})")
        figure.add_argument("--markdown", action="store_true", help="only the table, for a document; no picture")

    data = commands.add_parser("data", help="list, get, import, show data", description="Data sets and their files.")
    verbs = data.add_subparsers(title="what", required=True, metavar="WHAT")
    _command(verbs, "list", "every task, what it needs, and whether it is here", "data.list_data")
    get = _command(verbs, "get", "download a data set; an interrupted download goes on", "data.get")
    get.add_argument("name", help="a data set (`fedtrue data list`)")
    take = _command(verbs, "import", "make a data set of a file you have", "data.import_file")
    take.add_argument("kind", choices=["stackexchange"], help="what the file is: a dump's Posts.xml, plain, .xz or .7z")
    take.add_argument("file", type=Path, help="e.g. beer.stackexchange.com/Posts.xml")
    take.add_argument("--site", help="the name it gets (default: from the file's or its folder's name)")
    show = _command(verbs, "show", "statistics and a few examples a person can read", "data.show")
    show.add_argument("name", help="a task (`fedtrue tasks`)")
    show.add_argument("--examples", type=int, default=3, help="how many (default 3)")
    show.add_argument("-o", "--out", type=Path, help="where a picture goes, for images (default NAME.png)")
    _add_set(show)

    report = _command(commands, "report", "one HTML page of runs: curves, heat maps, tables", "reporting.report")
    report.add_argument("-o", "--out", type=Path, default=Path("report.html"), help="the page (default report.html)")
    report.add_argument("--title", help="its heading (default: the tasks' names)")
    report.add_argument("--pictures", type=Path, metavar="DIR", help="also draw the figures, into this folder")
    report.add_argument("--limits", metavar="A,B", help="the values that the pictures' curves show, e.g. 0.5,0.6")
    report.add_argument("--formats", default="png,pdf", help="of the pictures: png, pdf, svg (default png,pdf)")
    table = _command(commands, "table", "runs as a table for a document", "reporting.table")
    table.epilog = STATISTICS
    table.add_argument("--format", choices=["markdown", "csv", "latex"], default="markdown", help="(default markdown)")
    table.add_argument("--columns", metavar="A,B", help="settings, metrics, costs (default: what differs and counts)")
    table.add_argument("--sort", metavar="COLUMN", help="by a column; metrics best first (default: as given)")
    table.add_argument("--winners", metavar="A,B", help="of each combination of these columns the best row by --sort")
    table.add_argument("--target", type=float, help="what it cost until the metric reached this value, e.g. 0.5")
    table.add_argument("--heat-map", action="store_true", help="in place of rows: client rate × server rate")
    table.add_argument("-o", "--out", type=Path, help="a file (default: print)")
    pack = _command(commands, "pack", "archives of runs for a repository, one per sweep", "reporting.pack")
    where = "the archive NAME.runs.xz, or the folder for archives"
    pack.add_argument("-o", "--out", type=Path, required=True, metavar="FILE|DIR", help=where)
    anyway = "pack and mark runs whose code was not committed"
    pack.add_argument("--allow-uncommitted", action="store_true", help=anyway)
    readable = "run folders, archives, or folders that hold some"
    for reader in (report, table, pack):
        reader.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=readable)
    for reader in (report, table):
        reader.add_argument("--metric", help="e.g. test.accuracy, (default: the first the runs have)")
        reader.add_argument("--threshold", type=float, help="what a heat map's cells are counted above, e.g. 0.2")

    diagnose = _command(commands, "diagnose", "whether a run suffers from the bias, and why", "diagnosis.diagnose")
    diagnose.add_argument("run", type=Path, metavar="RUN", help="the folder given as --out")
    diagnose.add_argument("--clients", type=int, default=100, help="how many to look at, at least (default 100)")
    diagnose.add_argument("--orders", type=int, default=8, help="batch orders to average over (default 8)")

    _command(commands, "tasks", "list the tasks", "listing.list_tasks")
    _command(commands, "methods", "list methods and the parts they are made of", "listing.list_methods")
    return parser


def _command(commands: Any, name: str, summary: str, function: str) -> argparse.ArgumentParser:
    """A subcommand; its module is imported when it is called, so that `--help` is quick."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(command=_imported(function), flags=parser._option_string_actions)
    return parser


def _imported(function: str) -> Callable[..., Any]:
    module, name = function.split(".")
    return lambda options: getattr(import_module(f"fedtrue.commands.{module}"), name)(options)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """A flag per setting of a run, named after it, and per everyday option of the method; all else is for --set."""
    from fedtrue.runner.settings import METHOD_FLAGS, parse_value, run_settings

    often = parser.add_argument_group("often used")
    more = parser.add_argument_group("settings")
    often.add_argument("--method", metavar="NAME", help="a named method (`fedtrue methods`; default fedopt)")
    for name, (metavar, text) in METHOD_FLAGS.items():
        group = often if name in OFTEN_USED else more
        group.add_argument(_flag(name), type=parse_value, metavar=metavar, help=text)
    for name, entry in run_settings().items():
        group = often if name in OFTEN_USED else more
        if entry.default is False:
            group.add_argument(_flag(name), action="store_const", const=True, help=entry.metadata["help"])
            continue
        default = "" if entry.default is None else f" (default {entry.default})"
        takes = {"type": parse_value, "metavar": entry.metadata["metavar"]}
        group.add_argument(_flag(name), help=entry.metadata["help"] + default, **takes)
    _add_set(more)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_set(parser: Any) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any other setting or option of the method, e.g. --set client.epsilon=1e-5 --set mu=0.1",
    )
