"""A module imports only from its own layer and the layers above it, and no two modules import each other."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

import fedtrue

PACKAGE = Path(fedtrue.__file__).parent
DESIGN = PACKAGE.parent / "docs" / "design.md"
LAYERS = (  # one row per layer, first the one that everybody may import
    ("version", "types", "names", "files", "spec", "precision", "intervals"),
    ("data",),
    ("models",),
    ("lowering",),
    ("tasks",),
    ("algorithm",),
    (  # public names of `algorithm`
        *("client", "server", "schedules", "sampling", "methods", "interface"),
        *("compression", "aggregator", "privacy", "attack"),
    ),
    ("federation",),
    ("theory",),
    ("engine",),
    ("diagnosis",),
    ("runner",),
    ("callbacks",),  # public names of `runner`
    ("reports",),
    ("torch",),  # clients in PyTorch, imported on first use
    ("flower",),  # federation over a network, imported on first use
    ("fedtrue",),  # the package's __init__.py
    ("commands", "cli", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


class Import(NamedTuple):
    """`source` imports `target`, both dotted names; `on_import`: when it is imported, not when a function is called."""

    source: str
    target: str
    on_import: bool


def modules_in(package: Path) -> dict[str, Path]:
    """Dotted name → file, of all modules of a package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_statements(node: ast.AST, on_import: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import below a node, and whether it runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, on_import
        inside_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from import_statements(child, on_import and not inside_function)


def imported_names(statement: ast.Import | ast.ImportFrom, package: str, modules: dict[str, Path]) -> Iterator[str]:
    """Dotted names of what a statement imports; `from a import b` imports a.b where that is a module, else a."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = resolve_name("." * statement.level + (statement.module or ""), package)
    for alias in statement.names:
        name = f"{base}.{alias.name}"
        yield name if name in modules else base


def imports_in(package: Path, imported: str = "fedtrue") -> list[Import]:
    """What the modules of a package import from the package `imported`."""
    modules = modules_in(package)
    found = []
    for source, path in modules.items():
        parent = source if path.name == "__init__.py" else source.rpartition(".")[0]
        for statement, on_import in import_statements(ast.parse(path.read_text())):
            names = imported_names(statement, parent, modules)
            found += [Import(source, name, on_import) for name in names if name.split(".")[0] == imported]
    return found


def layer(module: str) -> str:
    """fedtrue.data.cache → data; fedtrue.cli → cli; fedtrue → fedtrue."""
    return (module.split(".")[1:] or [module])[0]


def wrong_imports(package: Path) -> list[str]:
    """One line per import from a layer below."""
    found = [(entry, layer(entry.source), layer(entry.target)) for entry in imports_in(package)]
    return [
        f"{entry.source} imports {entry.target}: {source} comes before {target}"
        for entry, source, target in found
        if RANK.get(source, -1) < RANK.get(target, len(LAYERS))
    ]


def modules_without_a_layer(package: Path) -> list[str]:
    return [name for name in modules_in(package) if layer(name) not in RANK]


def import_cycle(package: Path) -> list[str]:
    """The modules of one cycle of imports, the first again at the end; none: []."""
    graph: dict[str, set[str]] = {}
    for entry in imports_in(package):
        if entry.on_import:
            graph.setdefault(entry.source, set()).add(entry.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_is_in_a_layer():
    assert modules_without_a_layer(PACKAGE) == []


def test_a_layer_imports_only_from_itself_and_from_layers_above_it():
    assert wrong_imports(PACKAGE) == []


def test_no_modules_import_each_other_in_a_cycle():
    assert import_cycle(PACKAGE) == []


def test_only_reports_and_commands_draw():
    assert {layer(entry.source) for entry in imports_in(PACKAGE, "matplotlib")} <= {"reports", "commands"}


def test_the_design_lists_the_layers_in_this_order():
    table = DESIGN.read_text().split("## Layers")[1].split("\n## ")[0]
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert len(named) >= 10
    assert [RANK[name] for name in named] == sorted(RANK[name] for name in named)


def made_up_package(folder: Path, files: dict[str, str]) -> Path:
    """A package `fedtrue` with these files, and every layer that they import from."""
    empty = dict.fromkeys(("__init__.py", "data/__init__.py", "reports/__init__.py", "reports/page.py", "cli.py"), "")
    for name, text in (empty | files).items():
        path = folder / "fedtrue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "fedtrue"


@pytest.mark.parametrize(
    "text, target",
    [
        ("import fedtrue", "fedtrue"),
        ("import fedtrue.reports", "fedtrue.reports"),
        ("import fedtrue.reports.page as drawn", "fedtrue.reports.page"),
        ("import os, fedtrue.cli", "fedtrue.cli"),
        ("from fedtrue import __version__", "fedtrue"),
        ("from fedtrue import reports", "fedtrue.reports"),
        ("from fedtrue.reports import page", "fedtrue.reports.page"),
        ("from fedtrue.reports.page import draw", "fedtrue.reports.page"),
        ("from ..reports import page", "fedtrue.reports.page"),
        ("from .. import cli", "fedtrue.cli"),
        ("def f():\n    from fedtrue.reports import page", "fedtrue.reports.page"),
        ("class A:\n    def f(self):\n        import fedtrue.reports.page", "fedtrue.reports.page"),
        ("try:\n    import fedtrue.cli\nexcept ImportError:\n    pass", "fedtrue.cli"),
        ("import fedtrue.unknown", "fedtrue.unknown"),
    ],
)
def test_every_kind_of_import_from_a_layer_below_is_found(text, target, tmp_path):
    (found,) = wrong_imports(made_up_package(tmp_path, {"data/columns.py": text}))
    assert found.startswith(f"fedtrue.data.columns imports {target}: data comes before ")


@pytest.mark.parametrize(
    "text",
    [
        "import fedtrue.data.columns",
        "from fedtrue.data import columns",
        "from . import page",
        "import numpy, fedtrue_extras",
        "from fedtrue_extras import cli",
    ],
)
def test_imports_from_layers_above_from_the_own_layer_and_from_other_packages_are_right(text, tmp_path):
    package = made_up_package(tmp_path, {"data/columns.py": "", "reports/tables.py": text})
    assert wrong_imports(package) == [] and import_cycle(package) == []


def test_a_module_without_a_layer_is_found(tmp_path):
    package = made_up_package(tmp_path, {"extra.py": "", "more/__init__.py": ""})
    assert modules_without_a_layer(package) == ["fedtrue.extra", "fedtrue.more"]


@pytest.mark.parametrize(
    "files",
    [
        {"data/a.py": "import fedtrue.data.b", "data/b.py": "import fedtrue.data.a as a"},
        {"data/a.py": "from fedtrue.data import b", "data/b.py": "from fedtrue.data.a import f"},
        {"data/a.py": "from .b import f", "data/b.py": "from . import c", "data/c.py": "from . import a"},
        {"__init__.py": "from fedtrue.data import a", "data/a.py": "import fedtrue"},
        {"__init__.py": "from fedtrue.data import a", "data/a.py": "from fedtrue import __version__"},
        {"data/a.py": "class A:\n    import fedtrue.data.b", "data/b.py": "if True:\n    import fedtrue.data.a"},
    ],
)
def test_a_cycle_of_imports_is_found(files, tmp_path):
    cycle = import_cycle(made_up_package(tmp_path, files))
    assert cycle[0] == cycle[-1] and "fedtrue.data.a" in cycle


def test_an_import_inside_a_function_closes_no_cycle(tmp_path):
    files = {"data/a.py": "import fedtrue.data.b", "data/b.py": "def f():\n    import fedtrue.data.a"}
    assert import_cycle(made_up_package(tmp_path, files)) == []
