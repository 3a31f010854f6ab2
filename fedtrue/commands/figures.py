"""`fedtrue theory`."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtrue.algorithm.checks import whole
from fedtrue.commands.answer import Answer, printed, table
from fedtrue.report import figure_1, figure_4
from fedtrue.report.table_formats import markdown


def landscape(options: Namespace) -> Answer:
    return _figure("Fig. 1a", figure_1.landscape, options.out)


def curves(options: Namespace) -> Answer:
    return _figure("Fig. 1b", figure_1.curves, options.out)


def contraction(options: Namespace) -> Answer:
    """Measured, or read from the document of an earlier measurement."""
    whole("--steps", options.steps, low=1)
    document = figure_4.read(options.kept) if options.kept else _contraction(options)
    rows = figure_4.rows(document)
    columns = ["client", *rows[0]["numbers"]]
    cells = [[row["method"], *row["numbers"].values()] for row in rows]
    if options.markdown:
        texts = [[name, *(f"{number:.3g}" for number in numbers)] for name, *numbers in cells]
        text = markdown(columns, [column != "client" for column in columns], texts)
        return Answer({**document, "rows": rows}, lambda: print(text, end=""))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure_4.draw(document, options.out)
    said = f"{document['source']}: {document['clients']} clients, {document['orders']} batch orders"
    answer = {**document, "rows": rows, "picture": str(options.out)}
    return Answer(answer, printed(table("Fig. 4", columns, cells), said, f"picture: {options.out}"))


def _contraction(options: Namespace) -> Any:
    task = figure_4.in_one_hand() if options.in_one_hand else figure_4.writers()
    return figure_4.measure(task, options.steps)


def _figure(title: str, draw: Callable[[Path], Any], path: Path) -> Answer:
    data = draw(path)
    rows = [[row["method"], *row["numbers"].values()] for row in data["rows"]]
    columns = ["method", *data["rows"][0]["numbers"]]
    return Answer({**data, "picture": str(path)}, printed(table(title, columns, rows), f"picture: {path}"))
