"""Formulas become MathML when the site is built, so that its pages fetch nothing from elsewhere."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """mkdocs calls this for each page, after Markdown."""

    def as_mathml(match: re.Match[str]) -> str:
        inline = match[2] is not None
        return convert(html.unescape(match[2] if inline else match[3]), display="inline" if inline else "block")

    return FORMULA.sub(as_mathml, content)
