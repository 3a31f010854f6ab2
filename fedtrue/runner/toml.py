"""Reads and writes TOML: `read` has errors that name the file, `to_toml` accepts None, tuples and NumPy numbers."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w


def read(path: Path, expected: str) -> dict[str, Any]:
    """The table in the file; `expected` names what the error for a missing file asks for."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path} does not exist: give {expected}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """A table of numbers, strings, lists and tables as TOML; None, which TOML lacks, and empty tables are left out."""
    return tomli_w.dumps(_plain_table(table, ()))


def _plain_table(table: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The table without None and empty tables, with values of types that TOML has."""
    for key in table:
        if not isinstance(key, str):
            raise ValueError(f"{'.'.join((*keys, repr(key)))}: a key in TOML must be a string")
    plain = {key: _plain_value(value, (*keys, key)) for key, value in table.items() if value is not None}
    return {key: value for key, value in plain.items() if value != {}}


def _plain_value(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return _plain_table(value, keys)
    if isinstance(value, list | tuple):
        return [_plain_value(entry, keys) for entry in value]
    if getattr(value, "ndim", None) == 0:  # a NumPy or JAX number
        value = value.item()
    if isinstance(value, int | float | str):
        return value
    shown = " ".join(repr(value).split())
    raise ValueError(f"{'.'.join(keys)}: {shown} cannot be written as TOML: use numbers, strings, lists and tables")
