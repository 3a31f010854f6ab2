"""A table as Markdown, CSV, LaTeX and JSON; equal records give equal bytes."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from fedtrue.reports.column import Table
from fedtrue.reports.differences import Difference
from fedtrue.reports.measures import MeanOfLast, SeedMean
from fedtrue.reports.targets import TargetMissed

LATEX_ESCAPES = {
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
    return markdown_table([column.title for column in columns], [column.numeric for column in columns], table.texts())


def markdown_table(titles: Sequence[str], numeric: Sequence[bool], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of texts; numeric columns are aligned right."""
    line = lambda cells: "| " + " | ".join(map(escape_markdown, cells)) + " |"
    rule = "|" + "|".join("--:" if right else "---" for right in numeric) + "|"
    return "\n".join([line(titles), rule, *map(line, rows)]) + "\n"


def escape_markdown(text: str) -> str:
    """Escapes the characters that would end a cell or start a tag or emphasis."""
    for character in "\\`*_|[]":
        text = text.replace(character, "\\" + character)
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").split())


def to_csv(table: Table) -> str:
    """Raw numbers under the keys of the columns; a mean over seeds has its deviation in a second column, a
    difference half the width of its interval."""
    values = table.values()
    has_deviation = [any(_raw_mean(row[i])[1] for row in values) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = [
        (column.key, f"{column.key}.deviation") if two_columns else (column.key,)
        for column, two_columns in zip(table.columns, has_deviation)
    ]
    writer.writerow([key for pair in keys for key in pair])
    for row in values:
        cells = [_raw_mean(cell) if two else _raw_mean(cell)[:1] for cell, two in zip(row, has_deviation)]
        writer.writerow([cell for pair in cells for cell in pair])
    return out.getvalue()


def _raw_mean(cell: Any) -> tuple[Any, Any]:
    """(value, deviation) of a cell for CSV; empty strings for what does not exist."""
    if isinstance(cell, SeedMean | MeanOfLast):
        return repr(cell.value), "" if cell.deviation is None else repr(cell.deviation)
    if isinstance(cell, Difference):
        return repr(cell.value), "" if cell.interval is None else repr(cell.interval)
    if isinstance(cell, TargetMissed):
        return "", ""
    if isinstance(cell, list):
        return " ".join(map(str, cell)), ""
    return ("" if cell is None else cell), ""


def to_latex(table: Table) -> str:
    """A `tabular` for the package booktabs."""
    line = lambda cells: "  " + " & ".join(map(escape_latex, cells)) + r" \\"
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"  \toprule",
            line([column.title for column in table.columns]),
            r"  \midrule",
            *map(line, table.texts()),
            r"  \bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}


def to_records(table: Table) -> list[dict[str, Any]]:
    """The rows for `--json`: raw values under the keys of the columns."""
    plain = lambda cell: cell._asdict() if isinstance(cell, SeedMean | MeanOfLast | TargetMissed | Difference) else cell
    return [{column.key: plain(cell) for column, cell in zip(table.columns, row)} for row in table.values()]
