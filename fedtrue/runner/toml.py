"""Settings as TOML: the half that Python's own tomllib leaves out."""

import json
from collections.abc import Mapping
from typing import Any


def to_toml(table: Mapping[str, Any], where: str = "") -> str:
    """A table of numbers, strings, lists and tables; what is None is left out, as TOML has no word for it."""
    plain = [(key, value) for key, value in table.items() if value is not None and not isinstance(value, Mapping)]
    text = "".join(f"{_key(key)} = {_value(value)}\n" for key, value in plain)
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            name = where + _key(key)
            text += f"\n[{name}]\n{to_toml(value, name + '.')}"
    return text


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise ValueError(f"{value!r} cannot be written as TOML: use numbers, strings, lists and tables")
