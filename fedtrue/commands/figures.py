"""`fedtrue theory`."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, printed, table
from fedtrue.report import figure_1, figure_4
from fedtrue.report.table_formats import markdown

STEPS = 100


def landscape(options: Namespace) -> Answer:
    return _answer("Fig. 1a", "method", figure_1.landscape(_picture(options)), options)


def curves(options: Namespace) -> Answer:
    return _answer("Fig. 1b", "method", figure_1.curves(_picture(options)), options)


def contraction(options: Namespace) -> Answer:
    """Measured, or read from the document of an earlier measurement."""
    document = _kept(options) if options.kept else _measured(options)
    if picture := _picture(options):
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure_4.draw(document, picture)
    said = f"{document['source']}: {document['clients']} clients, {document['orders']} batch orders"
    return _answer("Fig. 4", "client", {**document, "rows": figure_4.rows(document)}, options, said)


def _measured(options: Namespace) -> Any:
    steps = STEPS if options.steps is None else check_int("--steps", options.steps, low=1)
    return figure_4.measure(figure_4.in_one_hand() if options.in_one_hand else figure_4.writers(), steps)


def _kept(options: Namespace) -> Any:
    if options.in_one_hand or options.steps is not None:
        raise ValueError("--kept shows what was measured: without it, --in-one-hand and --steps say what to measure")
    return figure_4.read(options.kept)


def _picture(options: Namespace) -> Path | None:
    return None if options.markdown else options.out


def _answer(title: str, first: str, data: Mapping[str, Any], options: Namespace, *said: str) -> Answer:
    """The figure's numbers as a table: on the terminal beside its picture, or in Markdown alone."""
    columns = [first, *data["rows"][0]["numbers"]]
    cells = [[row["method"], *row["numbers"].values()] for row in data["rows"]]
    if options.markdown:
        texts = [[name, *(f"{number:.3g}" for number in numbers)] for name, *numbers in cells]
        text = markdown(columns, [column != first for column in columns], texts)
        return Answer(data, lambda: print(text, end=""))
    shown = printed(table(title, columns, cells), *said, f"picture: {options.out}")
    return Answer({**data, "picture": str(options.out)}, shown)
