"""CSV files, plain or compressed: a header line, then one row per example; all values are strings."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from fedtrue.data.columns import batched
from fedtrue.data.compressed import open_binary
from fedtrue.data.rows import Rows, is_numeric, rows_per_chunk

SEPARATORS = ",;\t"


def read(path: Path) -> Iterator[Rows]:
    """Yield the rows in chunks. The separator is the one of `,`, `;` and tab that occurs most in the header."""
    with open_binary(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        try:
            yield from _read(path, text)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}): convert it") from None
        except csv.Error as error:
            raise ValueError(f"{path} is not CSV ({error}): correct the file") from None


def _read(path: Path, text: io.TextIOWrapper) -> Iterator[Rows]:
    first_line = text.readline()
    separator = max(SEPARATORS, key=first_line.count)
    header = [name.strip() for name in next(csv.reader([first_line], delimiter=separator), [])]
    _check_header(path, header)
    records = (record for record in csv.reader(text, delimiter=separator) if record)
    first = 1
    for chunk in batched(records, rows_per_chunk(len(header))):
        for offset, record in enumerate(chunk):
            if len(record) != len(header):
                raise ValueError(
                    f"{path}, row {first + offset} has {len(record)} values, but the header has {len(header)} names: "
                    "correct the row"
                )
        yield Rows(dict(zip(header, map(list, zip(*chunk)))), str(path), first)
        first += len(chunk)


def _check_header(path: Path, header: list[str]) -> None:
    if not any(header):
        raise ValueError(f"{path} is empty: give a CSV file with a header line")
    if is_numeric(header):
        raise ValueError(f"{path} has numbers in its first line: add a header line with the names of the columns")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise ValueError(f"{path} has two columns named {twice!r}: rename one")
