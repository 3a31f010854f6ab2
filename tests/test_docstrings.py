"""What users call is documented, and every example in a docstring runs."""

import doctest
import importlib
import inspect
import pkgutil
from importlib.util import find_spec

import pytest

import fedtrue as ft
from fedtrue.spec import FACTORIES, option_table, with_rows

MISSING = tuple(f"fedtrue.{name}" for name, needed in ft.LAZY.items() if not find_spec(needed))
MODULES = [
    module.name
    for module in pkgutil.walk_packages(ft.__path__, "fedtrue.")
    if "__main__" not in module.name and not module.name.startswith(MISSING)
]
NEED_DATA = {"mnist", "cifar10", "cifar100", "shakespeare", "stackexchange", "descriptions"}
NEED_DATA |= {"stackoverflow_words", "stackoverflow_tags", "imported"}
PUBLIC = {
    f"{space.__name__.removeprefix('fedtrue.')}.{name}": getattr(space, name)
    for space in (
        *(ft, ft.client, ft.data, ft.data.partition, ft.server, ft.schedules),
        *(ft.methods, ft.tasks, ft.theory, ft.interface),
        *(ft.compression, ft.aggregator, ft.privacy, ft.attack),
        *(getattr(ft, name) for name, needed in ft.LAZY.items() if find_spec(needed)),
    )
    for name in space.__all__
    if inspect.isfunction(getattr(space, name))
}


def with_examples():
    for name in MODULES:
        module = importlib.import_module(name)
        if any(test.examples for test in doctest.DocTestFinder(exclude_empty=True).find(module, name)):
            yield name


@pytest.mark.parametrize("name", list(with_examples()))
def test_every_example_in_a_docstring_runs(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.attempted and not found.failed


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_says_what_it_takes_and_returns(name):
    function = PUBLIC[name]
    text = inspect.getdoc(function) or ""
    if [p for p in inspect.signature(function).parameters if p != "self"]:
        assert "Args:" in text, f"{name} does not say what it takes"
    assert "Returns:" in text, f"{name} does not say what it returns"
    if name.split(".")[-1] not in NEED_DATA | {"sweep", "report"}:
        assert ">>>" in text, f"{name} has no example"


@pytest.mark.parametrize("kind", FACTORIES)
def test_every_option_of_every_part_is_described_where_the_part_describes_options(kind):
    for name, factory in FACTORIES[kind].items():
        text = factory.__doc__ or ""
        if "Args:" in text and factory.__module__.startswith("fedtrue."):
            missing = [option for option in option_table(factory) if f"        {option}: " not in text]
            assert not missing, f"{kind} {name}: {missing}"


def test_a_common_option_is_described_at_its_place_unless_the_part_describes_it():
    text = "One line.\n\n    Args:\n        b: own,\n            more.\n        d: own.\n\n    Returns:\n        x\n"
    rows = {"a": "common.", "b": "common.", "c": "common.", "e": "of others."}
    assert with_rows(text, ["a", "b", "c", "d"], rows) == (
        "One line.\n\n    Args:\n        a: common.\n        b: own,\n            more.\n        c: common.\n"
        "        d: own.\n\n    Returns:\n        x\n"
    )
    without = "One line.\n\n    Returns:\n        x\n"
    assert with_rows(without, ["a"], rows) == "One line.\n\n    Args:\n        a: common.\n\n    Returns:\n        x\n"
    assert with_rows(without, ["d"], rows) == without and with_rows(None, ["a"], rows) == ""
