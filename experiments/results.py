"""Rebuilds the tables and pictures of docs/results.md from the kept records.

    python experiments/results.py            # `make results`
    python experiments/results.py --check    # exit code 1 if the page is not what the records say

The page names the command of each of its tables, and the command's words replace what stands below it:

    <!-- fedtrue table experiments/records/shakespeare-paper.runs.xz -->
    …
    <!-- end -->

Commands of pictures stand alone: <!-- draw: fedtrue report … --pictures docs/pictures/shakespeare -->.
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
TABLE = re.compile(r"(<!-- fedtrue (?P<words>.*?) -->\n)(?P<said>.*?)(<!-- end -->)", re.DOTALL)
DRAWING = re.compile(r"<!-- draw: fedtrue (?P<words>.*?) -->")


def said_by(words: str) -> str:
    """What a fedtrue command prints."""
    from fedtrue.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(shlex.split(words))
    if code:
        raise SystemExit(f"fedtrue {words}: exit code {code}")
    return said.getvalue()


def rebuilt(page: str) -> str:
    """The page with every table made anew."""
    return TABLE.sub(lambda block: block[1] + said_by(block["words"]) + block[4], page)


def main() -> int:
    os.chdir(ROOT)
    page = PAGE.read_text()
    made = rebuilt(page)
    if "--check" in sys.argv:
        return int(made != page)
    for drawing in DRAWING.finditer(page):
        print(said_by(drawing["words"]), end="")
    PAGE.write_text(made)
    print(f"{PAGE.relative_to(ROOT)}: {len(TABLE.findall(made))} tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
