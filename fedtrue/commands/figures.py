"""`fedtrue theory`."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtrue.commands.answer import Answer, printed, table
from fedtrue.report import figure_1


def landscape(options: Namespace) -> Answer:
    return _figure("Fig. 1a", figure_1.landscape, options.out)


def curves(options: Namespace) -> Answer:
    return _figure("Fig. 1b", figure_1.curves, options.out)


def _figure(title: str, draw: Callable[[Path], Any], path: Path) -> Answer:
    data = draw(path)
    rows = [[row["method"], *row["numbers"].values()] for row in data["rows"]]
    columns = ["method", *data["rows"][0]["numbers"]]
    return Answer({**data, "picture": str(path)}, printed(table(title, columns, rows), f"picture: {path}"))
