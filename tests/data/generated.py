"""Small files in the published TFF layouts, written without TensorFlow."""

import lzma
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

SCHEMA = """
CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, serialized_example_proto BLOB NOT NULL);
CREATE INDEX idx_examples_client_id ON examples (client_id);
CREATE INDEX idx_examples_client_id_split ON examples (split_name, client_id);
CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, num_examples INTEGER NOT NULL);
CREATE INDEX idx_metadata_client_id ON client_metadata (client_id);
"""


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative int64 values are written as two's complement, ten bytes long
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def encode_feature(values: Sequence | bytes, packed: bool = True) -> bytes:
    """The message `Feature` of strings, floats or integers; the first value decides which."""
    values = [values] if isinstance(values, bytes) else list(values)
    if values and isinstance(values[0], bytes):
        return delimited(1, b"".join(delimited(1, value) for value in values))
    if values and isinstance(values[0], float):
        numbers = [np.float32(value).tobytes() for value in values]
        field, unpacked_tag = 2, varint(1 << 3 | 5)
    else:
        numbers = [varint(int(value)) for value in values]
        field, unpacked_tag = 3, varint(1 << 3 | 0)
    return delimited(
        field, delimited(1, b"".join(numbers)) if packed else b"".join(unpacked_tag + number for number in numbers)
    )


def encode_example(features: Mapping[str, Sequence | bytes], packed: bool = True) -> bytes:
    entries = [
        delimited(1, delimited(1, name.encode()) + delimited(2, encode_feature(values, packed)))
        for name, values in features.items()
    ]
    return delimited(1, b"".join(entries))


def write_sqlite(path: Path, rows: Iterable[tuple[str, str, bytes]]) -> Path:
    """TFF's two tables from (split, client id, message) rows."""
    counts: Counter[tuple[str, str]] = Counter()

    def counted():
        for split, client, message in rows:
            counts[client, split] += 1
            yield split, client, message

    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    with connection:
        connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", counted())
        metadata = [(client, split, count) for (client, split), count in counts.items()]
        connection.executemany("INSERT INTO client_metadata VALUES (?, ?, ?)", metadata)
    connection.close()
    return path


def pack_lzma(path: Path, layout: int = lzma.FORMAT_ALONE) -> Path:
    packed = path.with_name(path.name + ".lzma")
    packed.write_bytes(lzma.compress(path.read_bytes(), format=layout))
    return packed


def write_hdf5(path: Path, clients: Mapping[str, Mapping[str, Sequence]]) -> Path:
    """`examples/<client>/<feature>`; strings as TFF stores them, with variable length."""
    with h5py.File(path, "w") as file:
        for client, features in clients.items():
            for name, values in features.items():
                is_text = len(values) and isinstance(values[0], bytes)
                file.create_dataset(
                    f"examples/{client}/{name}",
                    data=np.array(values, object) if is_text else values,
                    dtype=h5py.string_dtype("ascii") if is_text else None,
                )
    return path


def stackoverflow_message(
    tokens: bytes, score: int = 0, kind: bytes = b"question", tags: bytes = b"python|jax"
) -> bytes:
    """All six features of one Stack Overflow example."""
    return encode_example(
        {
            "creation_date": b"2012-01-31 10:20:30.45 UTC",
            "score": [score],
            "tags": tags,
            "title": b"how to sum what clients send",
            "tokens": tokens,
            "type": kind,
        }
    )
