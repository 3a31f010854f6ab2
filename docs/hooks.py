"""What mkdocs does with our pages besides Markdown.

Formulas become MathML, so that no page fetches anything from elsewhere; `::: ft.tasks.mnist`, in the reference, becomes
mkdocstrings' own directive.
"""

import html
import inspect
import re
import sys
from operator import attrgetter
from pathlib import Path

from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package beside these pages, whatever else is installed

import fedtrue

FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL)
REFERENCE = re.compile(r"^::: ft\.([\w.]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """mkdocs calls this for each page, before Markdown."""
    return REFERENCE.sub(lambda match: documented(match[1]), markdown)


def documented(name: str) -> str:
    """mkdocstrings' directive for a public name, by where it is defined: `fedtrue.tasks.mnist` is also a module."""
    value = attrgetter(name)(fedtrue)
    defined = inspect.isfunction(value) or inspect.isclass(value)
    path = f"{value.__module__}.{value.__qualname__}" if defined else f"fedtrue.{name}"
    return f"::: {path}\n    options:\n      heading: ft.{name}\n      toc_label: {name.split('.')[-1]}"


def on_page_content(content: str, **_: object) -> str:
    """mkdocs calls this for each page, after Markdown."""

    def as_mathml(match: re.Match[str]) -> str:
        inline = match[2] is not None
        return convert(html.unescape(match[2] if inline else match[3]), display="inline" if inline else "block")

    return FORMULA.sub(as_mathml, content)
