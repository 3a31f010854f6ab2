"""The API reference has every public name, the glossary names code that exists, advice quotes measured numbers."""

import argparse
import inspect
import re
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import pytest

import fedtrue as ft
from fedtrue.cli import build_parser

DOCS = Path(__file__).parents[1] / "docs"
LAZY = {name: getattr(ft, name) for name, needed in ft.LAZY.items() if find_spec(needed)}
MODULES = {name: getattr(ft, name) for name in ft.__all__ if inspect.ismodule(getattr(ft, name))} | LAZY
PAGES = {"ft": (DOCS / "reference" / "fedtrue.md", ft)}
PAGES |= {f"ft.{name}": (DOCS / "reference" / f"{name}.md", module) for name, module in MODULES.items()}


def documented_names(page):
    return re.findall(r"^::: (ft\.[\w.]+)$", page.read_text(), re.MULTILINE)


def public_names(space, module):
    """Those of the module, and of modules in it that have no page of their own."""
    for name in module.__all__:
        full, value = f"{space}.{name}", getattr(module, name)
        if not inspect.ismodule(value):
            yield full
        elif full not in PAGES:
            yield from public_names(full, value)


@pytest.mark.parametrize("space", PAGES)
def test_the_reference_has_every_public_name_once(space):
    page, module = PAGES[space]
    public = public_names(space, module)
    lines = f"{page} has one line '::: NAME' for each public name"
    assert sorted(documented_names(page)) == sorted(public), lines


@pytest.mark.parametrize("space", PAGES)
def test_the_site_and_the_overview_of_the_reference_lead_to_every_page(space):
    name = PAGES[space][0].name
    assert f"reference/{name}" in (DOCS.parent / "mkdocs.yml").read_text()
    assert f"[`{space}`]({name})" in (DOCS / "reference" / "index.md").read_text()


GLOSSARY = (DOCS / "glossary.md").read_text()
ENTRIES = dict(re.findall(r"^### (.+)\n((?:.+\n)+)", GLOSSARY, re.MULTILINE))
CODE_OF = {term: re.findall(r"`(.+?)`", text.partition("Code:")[2]) for term, text in ENTRIES.items()}


def flags(parser):
    """All flags of a parser and its commands."""
    found = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found |= set().union(*map(flags, action.choices.values()))
    return found


FLAGS = flags(build_parser())


def exists(code):
    """Whether there is such a flag, file, public name, argument (`ft.train(cohort=)`) or field (`ft.Task.train`)."""
    if code.startswith("--"):
        return code in FLAGS
    if code.endswith(".py"):
        return (DOCS.parent / code).exists()
    name, argument = re.fullmatch(r"ft\.([\w.]+)(?:\((\w+)=\))?", code).groups()
    owner, _, field = name.rpartition(".")
    if owner and field in getattr(attrgetter(owner)(ft), "__annotations__", {}):
        return True
    value = attrgetter(name)(ft)
    return argument is None or argument in inspect.signature(value).parameters


@pytest.mark.parametrize("term", ENTRIES)
def test_the_code_names_of_the_glossary_exist(term):
    assert CODE_OF[term], f"{term} has no name in the code"
    assert [code for code in CODE_OF[term] if not exists(code)] == []


@pytest.mark.parametrize("term", [term for term, text in ENTRIES.items() if "$" in text])
def test_the_symbols_of_the_glossary_are_those_of_the_mathematics(term):
    used = re.findall(r"\$+(.+?)\$+", (DOCS / "mathematics.md").read_text().replace("\n", " "))
    symbols = re.findall(r"\$(.+?)\$", ENTRIES[term].replace("\n", " "))
    whole = lambda symbol: re.compile(rf"(?<![\w\\]){re.escape(symbol)}(?![A-Za-z])")
    assert [symbol for symbol in symbols if not any(map(whole(symbol).search, used))] == []


def test_a_name_in_the_glossary_that_does_not_exist_is_found():
    assert not exists("--cohorts") and not exists("fedtrue/federations.py") and not exists("ft.train(cohorts=)")
    with pytest.raises(AttributeError):
        exists("ft.trains")


PAGES_OF_NUMBERS = ("mathematics", "benchmarks", "results", "comparison")
MEASURING = [*(DOCS / f"{name}.md" for name in PAGES_OF_NUMBERS), *(DOCS / "results").glob("*.md")]
MEASURED = "".join(page.read_text() for page in MEASURING)


def test_every_number_of_the_advice_is_in_the_results():
    """ "Which method should I choose" quotes; it measures nothing of its own."""
    advice = re.sub(r"```.*?```", "", (DOCS / "choose.md").read_text(), flags=re.DOTALL)
    quoted = set(re.findall(r"\d+\.\d+(?: ± \d+(?:\.\d+)?)?|\d+ ± \d+", advice))
    assert len(quoted) > 30
    assert sorted(number for number in quoted if number not in MEASURED) == []
