"""`fedtrue theory`: the paper's figures, computed by `theory` and drawn by `report`."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrue.algorithm.checks import check_int
from fedtrue.commands.answer import Answer, printed, table
from fedtrue.report import draw_figure_1, draw_figure_4
from fedtrue.report.table_formats import markdown
from fedtrue.runner.folder import origin
from fedtrue.theory import figure_1, figure_4


def landscape(options: Namespace) -> Answer:
    document = figure_1.landscape()
    if picture := _picture(options):
        draw_figure_1.draw_landscape(document, figure_1.landscape_field(), picture)
    return _answer("Fig. 1a", "method", document, options)


def curves(options: Namespace) -> Answer:
    document = figure_1.curves()
    if picture := _picture(options):
        draw_figure_1.draw_curves(document, picture)
    return _answer("Fig. 1b", "method", document, options)


def contraction(options: Namespace) -> Answer:
    """Measured, or read from the document of an earlier measurement."""
    document = _read(options) if options.document else _measured(options)
    if picture := _picture(options):
        draw_figure_4.draw(document, picture)
    said = f"{document['source']}: {document['clients']} clients, {document['orders']} batch orders"
    return _answer("Fig. 4", "client", {**document, "rows": figure_4.rows(document)}, options, said)


def _measured(options: Namespace) -> dict[str, Any]:
    steps = figure_4.STEPS if options.steps is None else check_int("--steps", options.steps, low=1)
    task = figure_4.mnist_single_client() if options.single_client else figure_4.mnist_writers()
    return {**figure_4.measure(task, steps), "origin": origin()}


def _read(options: Namespace) -> dict[str, Any]:
    if options.single_client or options.steps is not None:
        raise ValueError(
            "--from shows what was measured before: leave out --single-client and --steps, or --from to measure"
        )
    return draw_figure_4.read(options.document)


def _picture(options: Namespace) -> Path | None:
    """Where the picture goes, in a folder that exists; None if only the table is wanted."""
    if options.markdown:
        return None
    options.out.parent.mkdir(parents=True, exist_ok=True)
    return Path(options.out)


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
