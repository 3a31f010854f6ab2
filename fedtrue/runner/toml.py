"""Settings as TOML: reading with the house's errors, and writing, which Python's own tomllib leaves out."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path, wanted: str) -> dict[str, Any]:
    """What the file says; `wanted` names what should have been given if it is not there."""
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path} is not there: give {wanted}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


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
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(float(value) if isinstance(value, float) else int(value))  # NumPy's floats write their type
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise ValueError(f"{value!r} cannot be written as TOML: use numbers, strings, lists and tables")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
