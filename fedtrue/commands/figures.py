"""`fedtrue theory`: figures of the paper, computed by `fedtrue.theory` and drawn by `fedtrue.reports`."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.commands.answer import Answer, printer, table
from fedtrue.reports.draw_figure_1 import draw_curves, draw_landscape
from fedtrue.reports.draw_figure_4 import draw_contraction, read_contraction
from fedtrue.reports.table_formats import markdown_table
from fedtrue.runner.folder import origin
from fedtrue.theory import figure_1, figure_4


def landscape(options: Namespace) -> Answer:
    document = figure_1.landscape()
    if picture := _picture_path(options):
        draw_landscape(document, figure_1.landscape_field(), picture)
    return _figure_answer("Fig. 1a", "method", document, options)


def curves(options: Namespace) -> Answer:
    document = figure_1.curves()
    if picture := _picture_path(options):
        draw_curves(document, picture)
    return _figure_answer("Fig. 1b", "method", document, options)


def contraction(options: Namespace) -> Answer:
    """Measures the contraction, or reads an earlier measurement."""
    document = _read(options) if options.document else _measure(options)
    if picture := _picture_path(options):
        draw_contraction(document, picture)
    source = f"{document['source']}: {document['clients']} clients, {document['orders']} batch orders"
    return _figure_answer("Fig. 4", "client", {**document, "rows": figure_4.rows(document)}, options, source)


def _measure(options: Namespace) -> dict[str, Any]:
    steps = figure_4.STEPS if options.steps is None else check_int("--steps", options.steps, low=1)
    task = figure_4.mnist_single_client() if options.single_client else figure_4.mnist_writers()
    asked = options.start_deviations
    deviations = (None,) if asked is None else [_deviation(text) for text in asked.split(",")]
    return {**figure_4.measure(task, steps, deviations=deviations), "origin": origin()}


def _deviation(text: str) -> float:
    try:
        return check_float("--start-deviations", float(text), open_low=True)
    except ValueError:
        raise ValueError(f"--start-deviations: {text!r} is not a number above 0: e.g. 0.05,0.3,1") from None


def _read(options: Namespace) -> dict[str, Any]:
    if options.single_client or options.steps is not None or options.start_deviations is not None:
        raise ValueError(
            "--from shows what was measured before: leave out --single-client, --steps and --start-deviations, "
            "or measure without --from"
        )
    return read_contraction(options.document)


def _picture_path(options: Namespace) -> Path | None:
    """Where the picture is saved, its folder created; None with --markdown, which prints the table only."""
    if options.markdown:
        return None
    options.out.parent.mkdir(parents=True, exist_ok=True)
    return Path(options.out)


def _figure_answer(title: str, first_column: str, data: Mapping[str, Any], options: Namespace, *notes: str) -> Answer:
    """The numbers of a figure as a table: in the terminal together with its picture, or in Markdown alone."""
    columns = [first_column, *data["rows"][0]["numbers"]]
    rows = [[row["method"], *row["numbers"].values()] for row in data["rows"]]
    if options.markdown:
        texts = [[name, *(f"{number:.3g}" for number in numbers)] for name, *numbers in rows]
        text = markdown_table(columns, [column != first_column for column in columns], texts)
        return Answer(data, lambda: print(text, end=""))
    show = printer(table(title, columns, rows), *notes, f"picture: {options.out}")
    return Answer({**data, "picture": str(options.out)}, show)
