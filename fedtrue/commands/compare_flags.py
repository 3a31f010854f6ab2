"""The flags of `fedtrue compare` and `fedtrue personalise`. Imports nothing heavy: `fedtrue --help` loads it."""

import argparse

from fedtrue.commands.arguments import path


def add_compare_flags(parser: argparse.ArgumentParser) -> None:
    """The task, and how its methods are compared."""
    parser.add_argument(
        "task",
        metavar="TASK|FILE",
        help="a task (see `fedtrue tasks`), the TOML file of a run, or your own task as FILE.py:NAME",
    )
    parser.add_argument(
        "--budget", type=int, default=24, metavar="INT", help="learning rates to try per method (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="INT",
        help="runs per method with the best of them (default: %(default)s)",
    )
    parser.add_argument(
        "--tuning-seeds",
        type=int,
        default=1,
        metavar="INT",
        help="seeds of every trial of learning rates, which are chosen by the mean over them (default: %(default)s)",
    )
    parser.add_argument(
        "--methods",
        metavar="LIST",
        help="methods, with options as 'fedopt(client=adam)', or all; fedavg is always compared (default: a dozen)",
    )
    parser.add_argument("--rounds", type=int, metavar="INT", help="rounds of every run (default: the task's)")
    parser.add_argument(
        "--target",
        type=float,
        metavar="FLOAT",
        help="show the costs until the metric reaches this value, e.g. 0.5 (default: total costs)",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=path,
        metavar="DIR",
        help="folder for all runs; goes on with those in it (default: in runs/)",
    )
    parser.add_argument(
        "--over",
        default="seed",
        metavar="KEY",
        help="the setting in which a method's runs differ, e.g. task_options.seed for splits (default: %(default)s)",
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument(
        "--picture",
        type=path,
        metavar="FILE",
        help="also draw the differences from FedAvg as PNG, PDF or SVG (default: none)",
    )


def add_personalise_flags(parser: argparse.ArgumentParser) -> None:
    """The run, and how its clients fine-tune."""
    parser.add_argument("run", type=path, metavar="RUN", help="the folder of a run that has ended")
    parser.add_argument(
        "--steps", type=int, metavar="INT", help="local steps of every client (default: those of a round of the run)"
    )
    parser.add_argument(
        "--client-rate",
        type=float,
        metavar="FLOAT",
        help="fine-tune by SGD with this learning rate (default: the run's client optimizer at its last rate)",
    )
    parser.add_argument(
        "--hold-out",
        type=float,
        metavar="FLOAT",
        help="evaluate on this last part of each client's train examples, e.g. 0.2, and fine-tune on the others "
        "(default: test data of the same clients)",
    )
    parser.add_argument(
        "-o", "--out", type=path, metavar="FILE", help="draw the gains, as .png, .pdf or .svg (default: none)"
    )
