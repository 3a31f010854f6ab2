"""Rebuilds the tables and pictures of docs/results.md from the kept records.

    python experiments/results.py            # `make results`
    python experiments/results.py --check    # exit code 1 if the page differs from the records

The page contains the command of each table; its output replaces the text below it:

    <!-- fedtrue table experiments/records/shakespeare-paper.runs.xz -->
    …
    <!-- end -->

A drawing command has no text below it: <!-- draw: fedtrue report … --pictures docs/pictures/shakespeare -->.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
TABLE = re.compile(r"(<!-- fedtrue (?P<command>.*?) -->\n)(?P<output>.*?)(<!-- end -->)", re.DOTALL)
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


def rebuilt(page: str) -> str:
    """The page with every table rebuilt."""
    return TABLE.sub(lambda block: block[1] + output_of(block["command"]) + block[4], page)


def main() -> int:
    os.chdir(ROOT)
    page = PAGE.read_text()
    new_page = rebuilt(page)
    if "--check" in sys.argv:
        return int(new_page != page)
    for drawing in DRAWING.finditer(page):
        print(output_of(drawing["command"]), end="")
    PAGE.write_text(new_page)
    print(f"{PAGE.relative_to(ROOT)}: {len(TABLE.findall(new_page))} tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
