"""A table as Markdown, CSV, LaTeX and JSON; the same records give the same bytes."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from fedtrue.report.measures import Mean, MeanOfLast
from fedtrue.report.tables import Table
from fedtrue.report.targets import Missed

LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "η": r"$\eta$",
    "α": r"$\alpha$",
}


def to_markdown(table: Table) -> str:
    columns = table.columns
    return markdown([column.title for column in columns], [column.numeric for column in columns], table.texts())


def markdown(titles: Sequence[str], numeric: Sequence[bool], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts; the numeric columns to the right."""
    line = lambda cells: "| " + " | ".join(map(in_markdown, cells)) + " |"
    rule = "|" + "|".join("--:" if right else "---" for right in numeric) + "|"
    return "\n".join([line(titles), rule, *map(line, rows)]) + "\n"


def in_markdown(text: str) -> str:
    """Characters that would end a cell or start a tag or emphasis, escaped."""
    for character in "\\`*_|[]":
        text = text.replace(character, "\\" + character)
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").split())


def to_csv(table: Table) -> str:
    """Raw numbers under the columns' keys; a mean over seeds has its deviation in a column beside it."""
    values = table.values()
    spread = [any(_raw(row[i])[1] for row in values) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = [
        (column.key, f"{column.key}.deviation") if wide else (column.key,)
        for column, wide in zip(table.columns, spread)
    ]
    writer.writerow([name for names in head for name in names])
    for row in values:
        cells = [_raw(cell) if wide else _raw(cell)[:1] for cell, wide in zip(row, spread)]
        writer.writerow([part for parts in cells for part in parts])
    return out.getvalue()


def _raw(cell: Any) -> tuple[Any, Any]:
    if isinstance(cell, Mean | MeanOfLast):
        return repr(cell.value), "" if cell.deviation is None else repr(cell.deviation)
    if isinstance(cell, Missed):
        return "", ""
    if isinstance(cell, list):
        return " ".join(map(str, cell)), ""
    return ("" if cell is None else cell), ""


def to_latex(table: Table) -> str:
    """A booktabs tabular: \\usepackage{booktabs}."""
    line = lambda cells: "  " + " & ".join(map(in_latex, cells)) + r" \\"
    shape = "".join("r" if column.numeric else "l" for column in table.columns)
    rows = [line(row) for row in table.texts()]
    head = line([column.title for column in table.columns])
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{shape}}}",
            r"  \toprule",
            head,
            r"  \midrule",
            *rows,
            r"  \bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def in_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}


def as_records(table: Table) -> list[dict[str, Any]]:
    """The rows for `--json`: raw values under the columns' keys."""
    plain = lambda cell: cell._asdict() if isinstance(cell, Mean | MeanOfLast | Missed) else cell
    return [{column.key: plain(cell) for column, cell in zip(table.columns, row)} for row in table.values()]
