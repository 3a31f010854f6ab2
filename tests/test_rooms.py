"""The house's rule: a room imports only from rooms above it."""

import ast
from pathlib import Path

import pytest

import fedtrue

PACKAGE = Path(fedtrue.__file__).parent
ROOMS = ["data", "models", "tasks", "algorithm", "theory", "engine", "runner", "report"]
ANYWHERE = {"files", "names", "precision"}  # small things everyone may use


def imported_rooms(path):
    """The rooms of fedtrue that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedtrue"):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_above_it(room):
    allowed = {*ROOMS[: ROOMS.index(room) + 1], *ANYWHERE}
    for path in (PACKAGE / room).glob("**/*.py"):
        assert set(imported_rooms(path)) <= allowed, path.name
