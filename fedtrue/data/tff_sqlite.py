"""TFF's SQLite files: `shakespeare.sqlite.lzma`, `stackoverflow.sqlite.lzma`, `cifar100.sqlite.lzma`, or unpacked.

examples(split_name, client_id, serialized_example_proto)    one row per example, a tf.train.Example message
client_metadata(client_id, split_name, num_examples)         one row per client
"""

from __future__ import annotations

import lzma
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np

from fedtrue.data import wire
from fedtrue.data.cache import cached_folder
from fedtrue.names import suggestion

Feature = bytes | list[bytes] | np.ndarray

TABLES = {
    "examples": ("split_name", "client_id", "serialized_example_proto"),
    "client_metadata": ("client_id", "split_name", "num_examples"),
}
MAGIC, HEADER_BYTES = b"SQLite format 3\0", 100
PACKED_SUFFIXES = (".lzma", ".xz")
UNPACKED_NAME = "unpacked.sqlite"
COPY_BYTES = 1 << 20


def read(path: Path, split: str, features: Sequence[str]) -> Iterator[tuple[str, dict[str, Feature]]]:
    """Yield (client id, {feature: value}) of every example of a split, in the order of the file.

    A string is returned as bytes (several as a list of bytes), numbers as a 1-d array.
    """
    path = Path(path)
    _check_split(path, split)
    columns = "rowid, client_id, serialized_example_proto"
    query = f"SELECT {columns} FROM examples NOT INDEXED WHERE split_name = ? ORDER BY rowid"
    wanted = frozenset(name.encode() for name in features)
    with _connected(path) as connection:
        for row, client, message in connection.execute(query, (split,)):
            try:
                found = wire.parse(message, wanted)
            except (ValueError, TypeError, AttributeError) as error:
                raise _row_error(path, client, row, f"is not a tf.train.Example ({error})") from None
            if len(found) < len(wanted):
                present = ", ".join(sorted(wire.parse(message)))
                missing = ", ".join(sorted(set(features) - found.keys()))
                raise _row_error(path, client, row, f"has no {missing}, only {present}")
            yield client, {name: values[0] if _is_single_string(values) else values for name, values in found.items()}


def splits(path: Path) -> list[str]:
    """The names of the file's splits."""
    with _connected(path) as connection:
        return [name for (name,) in connection.execute("SELECT DISTINCT split_name FROM client_metadata ORDER BY 1")]


def feature_names(path: Path) -> list[str]:
    """The names of the features, those of the first example."""
    with _connected(path) as connection:
        first = connection.execute("SELECT serialized_example_proto FROM examples LIMIT 1").fetchone()
    return sorted(wire.parse(first[0])) if first else []


def unpacked(path: Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """The SQLite file: `path` itself, or its decompressed copy in the cache folder, made on the first call.

    `progress` is called with (compressed bytes read, compressed bytes in total).
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the path or FEDTRUE_DATA")
    if path.suffix not in PACKED_SUFFIXES:
        return path
    folder = cached_folder(path.name, [path], {}, lambda folder: _unpack(path, folder / UNPACKED_NAME, progress))
    return folder / UNPACKED_NAME


def _unpack(path: Path, target: Path, progress: Callable[[int, int], None] | None) -> dict:
    packed_bytes = path.stat().st_size
    try:
        with path.open("rb") as packed, lzma.open(packed) as source, target.open("wb") as sink:
            while block := source.read(COPY_BYTES):
                sink.write(block)
                if progress:
                    progress(packed.tell(), packed_bytes)
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{path} is damaged or incomplete ({error}): download it again; nothing was changed") from None
    _check_complete(path, target)
    return {}


def _check_complete(path: Path, database: Path) -> None:
    """Reject a file that is not SQLite, or shorter than its header says: SQLite would read missing pages as zeros."""
    with database.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
        raise ValueError(f"{path} is not an SQLite file: give TFF's .sqlite or .sqlite.lzma; nothing was changed")
    (page_bytes,), (pages,) = struct.unpack(">H", header[16:18]), struct.unpack(">I", header[28:32])
    expected_bytes = pages * (
        65536 if page_bytes == 1 else page_bytes
    )  # 65536 is stored as 1: it does not fit the field
    if database.stat().st_size < expected_bytes:
        reason = f"{database.stat().st_size} of {expected_bytes} bytes"
        raise ValueError(f"{path} is damaged or incomplete ({reason}): download it again; nothing was changed")


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection, without locks or journal. SQLite's errors are raised with the name of the file."""
    path = Path(path)
    database = unpacked(path)
    _check_complete(path, database)
    location = f"file:{quote(str(database.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(location, uri=True)) as connection:
            _check_tables(path, connection)
            yield connection
    except sqlite3.Error as error:
        raise ValueError(f"{path} is damaged or incomplete ({error}): download it again; nothing was changed") from None


def _check_tables(path: Path, connection: sqlite3.Connection) -> None:
    for table, expected in TABLES.items():
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if missing := [column for column in expected if column not in present]:
            raise ValueError(
                f"{path} has no {table}({', '.join(missing)}), so it is not in TFF's layout: give a TFF .sqlite file"
            )


def _check_split(path: Path, split: str) -> None:
    valid = splits(path)
    if split not in valid:
        near = suggestion(split, valid)
        raise ValueError(f"{path} has no split {split!r}{near}; choose one of: {', '.join(valid)}")


def _is_single_string(values: list[bytes] | np.ndarray) -> bool:
    return len(values) == 1 and isinstance(values, list)


def _row_error(path: Path, client: str, row: int, problem: str) -> ValueError:
    return ValueError(f"{path}: row {row} of client {client!r} {problem}: download the file again; nothing was changed")
