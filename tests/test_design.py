"""docs/design.md names lines of code, and they exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| `(fedtrue/[\w/]+\.py)` \| `(.+)` \|$", DESIGN, re.MULTILINE)


def test_the_table_has_the_steps_of_algorithm_1():
    assert len(ROWS) == 15


@pytest.mark.parametrize(("step", "path", "line"), ROWS, ids=[row[0] for row in ROWS])
def test_the_line_of_each_step_exists_once(step, path, line):
    lines = [text.strip() for text in (ROOT / path).read_text().splitlines()]
    assert lines.count(line) == 1, f"{path} has the line {line!r} {lines.count(line)} times"


def test_every_dependency_has_its_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    for requirement in [*project["dependencies"], *extras]:
        name = re.match(r"[\w-]+", requirement)[0]
        assert re.search(rf"^\| .*\b{re.escape(name)}\b.* \|", DESIGN, re.MULTILINE), f"{name} has no reason"
