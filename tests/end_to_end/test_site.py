"""The documentation site: it builds without warnings, fetches nothing, and its search finds the terms."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
CANONICAL = re.compile(r"rel=[\"']?(?:canonical|prev|next)")

pytestmark = pytest.mark.slow  # it builds the whole site; `make docs` builds it too


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install 'fedtrue[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_no_page_fetches_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    found = {page.name: FETCHED.findall(page.read_text()) for page in pages}
    assert {name: tags for name, tags in found.items() if any(not CANONICAL.search(tag) for tag in tags)} == {}


def test_the_search_finds_terms_and_functions(site):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    titles = {(entry["location"].partition("#")[0], entry["title"]) for entry in entries}
    assert {("glossary/", "Cohort"), ("glossary/", "Pseudo-gradient")} <= titles
    assert any(page == "reference/tasks/" and "from_arrays" in title for page, title in titles)


def test_docstrings_are_rendered_in_their_parts(site):
    page = (site / "reference" / "fedtrue" / "index.html").read_text()
    assert "Parameters:" in page and "Returns:" in page and "Examples:" in page
    assert "Args:" not in page
    assert "<blockquote" not in page  # Markdown's reading of >>> outside code
