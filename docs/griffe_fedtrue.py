"""How mkdocstrings reads this package. Our docstrings are Google's, except for what this adds to them: doctests get a
heading, the fields of a class become a list of attributes, comments beside fields and constants are their
descriptions, defaults are shown as values, and functions have the options and descriptions that decorators add."""

import importlib
import inspect
import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> ", re.MULTILINE)
COMMENT = re.compile(r"\s#\s(.+)$")
BY_NAME = re.compile(r"by_name\((.+)\)")


class Docstrings(griffe.Extension):
    """Listed after griffe's own `dataclasses`, which reads the fields before they become a list."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """griffe calls this when it has read the package."""
        complete(pkg)


def complete(owner: griffe.Object) -> None:
    """Completes the docstrings and signatures of everything in a module or class."""
    for member in list(owner.members.values()):
        if member.is_alias:
            continue
        if member.is_function and member.decorators and owner.is_module:
            decorate(member)
        if member.docstring:
            fields = field_list(member) if member.is_class else ""
            member.docstring.value = with_examples_heading(member.docstring.value, fields)
        elif member.is_attribute and owner.is_module and (comment := COMMENT.search(member.source)):
            member.docstring = griffe.Docstring(comment[1], parent=member)
        if member.is_function:
            for parameter in member.parameters:
                parameter.default = default_value(parameter.default, member.module)
        if member.is_module or member.is_class:
            complete(member)


def decorate(function: griffe.Function) -> None:
    """What `@named` and its like make of a function: griffe reads the source only."""
    made = getattr(importlib.import_module(function.module.path), function.name)
    if made.__doc__:
        function.docstring = griffe.Docstring(inspect.getdoc(made), parent=function)
    for name, option in inspect.signature(made).parameters.items():
        if name not in function.parameters:
            kind, default = griffe.ParameterKind.keyword_only, str(option.default)
            function.parameters.add(griffe.Parameter(name, kind=kind, default=default))


def field_list(owner: griffe.Class) -> str:
    """An `Attributes:` section of the annotated fields, which are then no members of their own."""
    lines = []
    for name, field in list(owner.members.items()):
        if field.is_attribute and field.annotation and "property" not in field.labels:
            if not name.startswith("_"):
                default = f"default: {field.value}" if field.value else "required"
                comment = COMMENT.search(field.source)
                lines.append(f"    {name} ({field.annotation}): {comment[1] if comment else default}")
            owner.del_member(name)
    return "\n".join(["Attributes:", *lines, "", ""]) if lines else ""


def with_examples_heading(text: str, before: str = "") -> str:
    """The docstring with its doctests below the heading that Google's style wants, and `before` in front of it."""
    first = DOCTEST.search(text)
    start = first.start() if first else len(text)
    examples = "\n".join(f"    {line}".rstrip() for line in text[start:].splitlines())
    return f"{text[:start].rstrip()}\n\n{before}" + (f"Examples:\n{examples}" if first else "")


def default_value(default: Any, module: griffe.Module) -> Any:
    """'uniform' instead of by_name('uniform'), 1e-07 instead of EPSILON."""
    if found := BY_NAME.fullmatch(str(default)):
        return found[1]
    constant = module.members.get(str(default))
    if constant is None or not str(default).isupper():
        return default
    return str(constant.final_target.value if constant.is_alias else constant.value)
