"""JSON lines, plain or compressed: any objects, or texts as `{"client": …, "title": …, "text": …, "tags": [...]}`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedtrue.data.compressed import open_binary


def read_objects(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (where the line is, its object) line by line; empty lines are skipped."""
    path = Path(path)
    with open_binary(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield f"{path}, line {number}", _parse_line(f"{path}, line {number}", line)


def read(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (client, {title, text, tags}) line by line. A line needs a title or a text; tags are optional."""
    for location, record in read_objects(path):
        if "client" not in record or not ("text" in record or "title" in record):
            raise ValueError(f"{location} is not an object with 'client' and 'text' or 'title': add the missing keys")
        yield (
            str(record["client"]),
            {
                "title": _string(location, record, "title"),
                "text": _string(location, record, "text"),
                "tags": _strings(location, record, "tags"),
            },
        )


def _parse_line(location: str, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{location} is not JSON ({error}): correct the line or download the file again") from error
    if not isinstance(record, dict):
        raise ValueError(f"{location} is not an object with 'client' and other keys: write one object per line")
    return record


def _string(location: str, record: dict[str, Any], key: str) -> str:
    value = record.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{location}: {key!r} is {value!r}, not a string: quote it")
    return value


def _strings(location: str, record: dict[str, Any], key: str) -> list[str]:
    values = record.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f'{location}: {key!r} is {values!r}, not a list of strings: write ["a", "b"]')
    return values
