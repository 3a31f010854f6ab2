"""Rebuilds the tables and pictures of docs/results.md, docs/comparison.md and docs/results/ from the kept records.

    python experiments/results.py            # `make results`
    python experiments/results.py --check    # exit code 1 if a page differs from the records

A page contains the command of each table; its output replaces the text below it:

    <!-- fedtrue table experiments/records/shakespeare-paper.runs.xz -->
    …
    <!-- end -->

A drawing command has no text below it: <!-- draw: fedtrue report … --pictures docs/pictures/shakespeare -->. And
<!-- claims paper --> is the table of the claims of section `paper` in claims.toml.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

import claims

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "comparison.md",
    *sorted((ROOT / "docs" / "results").glob("*.md")),
]
TABLE = re.compile(r"(<!-- (?P<kind>fedtrue|claims) (?P<command>.*?) -->\n)(?P<output>.*?)(<!-- end -->)", re.DOTALL)
DRAWING = re.compile(r"<!-- draw: fedtrue (?P<command>.*?) -->")


def output_of(command: str) -> str:
    """The output of a fedtrue command."""
    from fedtrue.cli import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(shlex.split(command))
    if code:
        raise SystemExit(f"fedtrue {command}: exit code {code}")
    return output.getvalue()


def table_of(block: re.Match[str]) -> str:
    """What a block of a page must show."""
    return claims.table(block["command"]) if block["kind"] == "claims" else output_of(block["command"])


def rebuilt(page: str) -> str:
    """The page with every table rebuilt."""
    return TABLE.sub(lambda block: block[1] + table_of(block) + "<!-- end -->", page)


def main() -> int:
    os.chdir(ROOT)
    check, changed = "--check" in sys.argv, False
    for path in PAGES:
        page = path.read_text()
        new_page = rebuilt(page)
        changed |= new_page != page
        if check:
            continue
        for drawing in DRAWING.finditer(page):
            print(output_of(drawing["command"]), end="")
        path.write_text(new_page)
        print(f"{path.relative_to(ROOT)}: {len(TABLE.findall(new_page))} tables")
    return int(check and changed)


if __name__ == "__main__":
    sys.exit(main())
