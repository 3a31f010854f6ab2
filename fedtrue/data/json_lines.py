"""Texts as JSON lines: `{"client": …, "title": …, "text": …, "tags": [...]}`, plain or compressed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedtrue.data.compressed import open_binary


def read(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(client, {title, text, tags}), line by line; title, text or tags may be absent, title and text not both."""
    path = Path(path)
    with open_binary(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield _example(f"{path}, line {number}", line)


def _example(place: str, line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place} is not JSON ({error}): correct the line or get the file again") from error
    if not isinstance(record, dict) or "client" not in record or not ("text" in record or "title" in record):
        raise ValueError(f"{place} is no object with 'client' and 'text' or 'title': add the missing keys")
    return str(record["client"]), {
        "title": _string(place, record, "title"),
        "text": _string(place, record, "text"),
        "tags": _strings(place, record, "tags"),
    }


def _string(place: str, record: dict[str, Any], key: str) -> str:
    value = record.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{place}: {key!r} is {value!r}, not a string: quote it")
    return value


def _strings(place: str, record: dict[str, Any], key: str) -> list[str]:
    values = record.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f'{place}: {key!r} is {values!r}, not a list of strings: write ["a", "b"]')
    return values
