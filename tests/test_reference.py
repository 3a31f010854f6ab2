"""The API reference has every public name, and the glossary names code that exists."""

import inspect
import re
from operator import attrgetter
from pathlib import Path

import pytest

import fedtrue as ft

DOCS = Path(__file__).parents[1] / "docs"
MODULES = {name: getattr(ft, name) for name in ft.__all__ if inspect.ismodule(getattr(ft, name))}
PAGES = {"ft": (DOCS / "reference" / "fedtrue.md", ft)}
PAGES |= {f"ft.{name}": (DOCS / "reference" / f"{name}.md", module) for name, module in MODULES.items()}


def documented_names(page):
    return re.findall(r"^::: (ft\.[\w.]+)$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("space", PAGES)
def test_the_reference_has_every_public_name_once(space):
    page, module = PAGES[space]
    public = [f"{space}.{name}" for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    lines = f"{page} has one line '::: NAME' for each public name"
    assert sorted(documented_names(page)) == sorted(public), lines


@pytest.mark.parametrize("space", PAGES)
def test_the_site_and_the_overview_of_the_reference_lead_to_every_page(space):
    name = PAGES[space][0].name
    assert f"reference/{name}" in (DOCS.parent / "mkdocs.yml").read_text()
    assert f"[`{space}`]({name})" in (DOCS / "reference" / "index.md").read_text()
