"""Columns on disk: a stream of examples becomes one memory-mapped array per column, with each client's rows contiguous.

Memory is bounded for any number of examples: rows are written in chunks, and if the clients were interleaved, the rows
are moved to their client's in chunks too. Only the names and counts of the clients are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np

from fedtrue.data.client_data import ClientData, ClientIds, Column, Ragged
from fedtrue.data.rows import take

T = TypeVar("T")
Example = tuple[str, Mapping[str, Any]]  # (client id, column → value)

CHUNK_EXAMPLES = 512  # written at once; few enough to stay in the CPU cache
MOVED_EXAMPLES = 32768  # moved at once, if clients were interleaved: at most this many,
MOVED_BYTES = 32 << 20  # and at most this many bytes, estimated from the mean size of a row


@dataclass(frozen=True)
class Fixed:
    """A column whose examples all have the same shape; () means one number per example."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Varying:
    """A column of 1-d rows of different lengths."""

    dtype: Any


Schema = Mapping[str, Fixed | Varying]


@dataclass(frozen=True)
class Chunk:
    """Many examples at once, for sources of millions of examples, where Python's time per example matters."""

    clients: Sequence[str]  # the client of each example
    columns: Mapping[str, Any]  # the stacked values of each column; for a varying column a list of rows

    def subset(self, indices: np.ndarray) -> Chunk:
        """The examples at these indices."""
        columns = {name: take(values, indices) for name, values in self.columns.items()}
        return Chunk(take(self.clients, indices), columns)


Examples = Iterable[Example] | Iterable[Chunk]  # a source yields only one of the two kinds


def describe(schema: Schema) -> dict[str, dict]:
    """The schema as JSON; a column name that cannot be a file name raises a ValueError."""
    for name in schema:
        if not name.isidentifier():
            raise ValueError(f"column name {name!r} is not an identifier: use letters, digits and _")
    return {
        name: {"dtype": np.dtype(kind.dtype).str, "shape": list(kind.shape) if isinstance(kind, Fixed) else None}
        for name, kind in schema.items()
    }


def schema_from(description: Mapping[str, Mapping[str, Any]]) -> Schema:
    """The schema that `describe` described."""
    return {
        name: Varying(np.dtype(kind["dtype"]))
        if kind["shape"] is None
        else Fixed(tuple(kind["shape"]), np.dtype(kind["dtype"]))
        for name, kind in description.items()
    }


def write(folder: Path, schema: Schema, examples: Examples, progress: Callable[[int], None] | None) -> dict:
    """Write all examples into `folder` and return the counts; `progress` is called with the examples written so far."""
    with ColumnsWriter(folder, schema) as writer:
        for chunk in _chunks(examples, schema):
            writer.append(chunk)
            if progress:
                progress(writer.examples)
    return writer.finish()


class ColumnsWriter:
    """Writes chunks of examples into a folder; after the last one, `finish` sorts the clients."""

    def __init__(self, folder: Path, schema: Schema):
        describe(schema)
        self._folder, self._schema = folder, schema
        self._code_of_client: dict[str, int] = {}
        self._codes = NpyStream(folder / "codes.npy", np.uint32)
        self._writers = {name: _column_writer(folder, name, kind) for name, kind in schema.items()}

    def __enter__(self) -> ColumnsWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for stream in (self._codes, *self._writers.values()):
            stream.close()

    @property
    def examples(self) -> int:
        """The number of examples written so far."""
        return self._codes.rows

    def append(self, chunk: Chunk) -> None:
        """Write the examples of one chunk."""
        codes = self._code_of_client
        self._codes.append(np.array([codes.setdefault(client, len(codes)) for client in chunk.clients]))
        for name, writer in self._writers.items():
            writer.append(_checked_values(chunk, name))

    def finish(self) -> dict:
        """Make the rows of each client contiguous, write the clients, and return the counts."""
        if not self._codes.rows:
            raise ValueError("the source has no examples: check the file")
        _write_clients(self._folder, self._schema, self._code_of_client)
        return {"clients": len(self._code_of_client), "examples": self._codes.rows}


def open_columns(folder: Path, schema: Schema) -> ClientData:
    """The data in `folder`. The starts and sizes of clients are read, everything else is memory-mapped."""
    id_splits = _open_npy(folder / "client_ids.splits.npy")
    return ClientData(
        columns={name: _open_column(folder, name, kind) for name, kind in schema.items()},
        starts=np.load(folder / "starts.npy"),
        sizes=np.load(folder / "sizes.npy"),
        client_ids=ClientIds(_open_npy(folder / "client_ids.utf8.npy"), id_splits[:-1], id_splits[1:]),
    )


def _open_column(folder: Path, name: str, kind: Fixed | Varying) -> Column:
    if isinstance(kind, Fixed):
        return _open_npy(folder / f"{name}.npy")
    width = int(np.load(folder / f"{name}.width.npy"))
    return Ragged(_open_npy(folder / f"{name}.values.npy"), _open_npy(folder / f"{name}.splits.npy"), width)


def _open_npy(path: Path, mode: Literal["r", "r+"] = "r") -> np.ndarray:
    try:
        return np.load(path, mmap_mode=mode)
    except ValueError:
        empty = np.load(path)  # an empty file cannot be memory-mapped
        if empty.size:
            raise
        return empty


def batched(items: Iterable[T], size: int = CHUNK_EXAMPLES) -> Iterator[list[T]]:
    """The items in lists of `size`; the last list may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _chunks(examples: Examples, schema: Schema) -> Iterator[Chunk]:
    """The chunks of the source, or its examples grouped into chunks."""
    items = iter(examples)
    first = next(items, None)
    if first is None:
        return
    if isinstance(first, Chunk):
        yield first
        yield from cast(Iterator[Chunk], items)
        return
    singles = cast(Iterator[Example], chain([first], items))
    for batch in batched(singles, CHUNK_EXAMPLES):
        yield Chunk([client for client, _ in batch], {name: _column_values(batch, name) for name in schema})


def _checked_values(chunk: Chunk, name: str) -> Any:
    if name not in chunk.columns:
        raise ValueError(f"a chunk has no column {name!r}, only {sorted(chunk.columns)}")
    if len(chunk.columns[name]) != len(chunk.clients):
        raise ValueError(f"a chunk has {len(chunk.columns[name])} rows of {name!r} for {len(chunk.clients)} examples")
    return chunk.columns[name]


def _column_values(chunk: list[Example], name: str) -> list:
    try:
        return [example[name] for _, example in chunk]
    except KeyError:
        client, example = next((client, example) for client, example in chunk if name not in example)
        raise ValueError(f"an example of client {client!r} has no column {name!r}, only {sorted(example)}") from None


class NpyStream:
    """A .npy file written row by row; the number of rows is filled into its header when it is closed."""

    def __init__(self, path: Path, dtype: Any, shape: tuple[int, ...] = ()):
        self.dtype, self.shape, self.rows = np.dtype(dtype), shape, 0
        self._file = path.open("wb")
        self._header_bytes = self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Write rows at the end of the file."""
        self._file.write(rows.astype(self.dtype, copy=False).tobytes())
        self.rows += len(rows)

    def close(self) -> None:
        """Write the final header and close the file."""
        self._file.seek(0)
        if self._write_header() != self._header_bytes:  # NumPy reserves space for any number of rows
            raise RuntimeError(f"the header of {self._file.name} grew while it was written")
        self._file.close()

    def _write_header(self) -> int:
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.rows, *self.shape)}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


class FixedWriter:
    """Writes a `Fixed` column."""

    def __init__(self, folder: Path, name: str, kind: Fixed):
        self._name, self._kind = name, kind
        self._stream = NpyStream(folder / f"{name}.npy", kind.dtype, kind.shape)

    def append(self, values: Sequence) -> None:
        rows = _cast_exactly(self._name, _stack(self._name, values), self._kind.dtype)
        if rows.size != len(values) * int(np.prod(self._kind.shape)):
            raise ValueError(f"column {self._name!r} has an example of shape {rows.shape[1:]}, not {self._kind.shape}")
        self._stream.append(rows.reshape(len(values), *self._kind.shape))

    def close(self) -> None:
        self._stream.close()


class VaryingWriter:
    """Writes a `Varying` column: its values, row splits and width."""

    def __init__(self, folder: Path, name: str, kind: Varying):
        self._name, self._kind, self._width = name, kind, 0
        self._width_path = folder / f"{name}.width.npy"
        self._values = NpyStream(folder / f"{name}.values.npy", kind.dtype)
        self._splits = NpyStream(folder / f"{name}.splits.npy", np.int64)
        self._splits.append(np.zeros(1, np.int64))

    def append(self, values: Sequence) -> None:
        rows = [np.asarray(row) for row in values]
        if any(row.ndim != 1 for row in rows):
            raise ValueError(
                f"column {self._name!r} has an example that is not a 1-d row: declare it Fixed, or flatten it"
            )
        lengths = np.array([len(row) for row in rows])
        self._splits.append(self._values.rows + np.cumsum(lengths))
        self._values.append(_cast_exactly(self._name, np.concatenate(rows), self._kind.dtype))
        self._width = max(self._width, int(lengths.max()))

    def close(self) -> None:
        self._values.close()
        self._splits.close()
        np.save(self._width_path, self._width)


def _column_writer(folder: Path, name: str, kind: Fixed | Varying) -> FixedWriter | VaryingWriter:
    return FixedWriter(folder, name, kind) if isinstance(kind, Fixed) else VaryingWriter(folder, name, kind)


def _stack(name: str, values: Sequence) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"column {name!r} has examples of different shapes: declare it Varying, or pad them") from None


def _cast_exactly(name: str, values: np.ndarray, dtype: Any) -> np.ndarray:
    """The values in the column's dtype; an integer or string that would change raises an error instead of wrapping."""
    converted = values.astype(dtype)
    if converted.dtype.kind in "iubSU" and not np.array_equal(converted, values):
        raise ValueError(f"column {name!r} has a value that {converted.dtype} cannot hold: choose a wider dtype")
    return converted


def _write_clients(folder: Path, schema: Schema, code_of_client: dict[str, int]) -> None:
    """Write the clients' starts, sizes and names, sorted by name; make the rows of each client contiguous if needed."""
    names = sorted(code_of_client)
    rank_of_code = np.empty(len(names), np.int64)
    rank_of_code[[code_of_client[name] for name in names]] = np.arange(len(names))
    starts, sizes, contiguous = _client_ranges(folder / "codes.npy", rank_of_code)
    if not contiguous:
        starts = np.cumsum(sizes) - sizes
        _write_destinations(folder, rank_of_code, starts)
        for name, kind in schema.items():
            _move_fixed(folder, f"{name}.npy") if isinstance(kind, Fixed) else _move_varying(folder, name)
        (folder / "destinations.npy").unlink()
    (folder / "codes.npy").unlink()
    np.save(folder / "starts.npy", starts)
    np.save(folder / "sizes.npy", sizes)
    ids = ClientIds.from_names(names)
    np.save(folder / "client_ids.utf8.npy", ids.utf8)
    np.save(folder / "client_ids.splits.npy", np.concatenate([[0], ids.stops]))


def _client_ranges(codes_path: Path, rank_of_code: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """(first row of each client, its number of rows, whether every client's rows are contiguous already)."""
    clients = len(rank_of_code)
    starts, sizes = np.full(clients, np.iinfo(np.int64).max), np.zeros(clients, np.int64)
    runs, previous_rank = 0, -1
    for begin, end in _row_chunks(len(_open_npy(codes_path))):
        ranks = rank_of_code[_open_npy(codes_path)[begin:end]]
        np.minimum.at(starts, ranks, np.arange(begin, end))
        np.add.at(sizes, ranks, 1)
        runs += int(np.count_nonzero(np.diff(ranks, prepend=previous_rank)))
        previous_rank = ranks[-1]
    return starts, sizes, runs == clients


def _row_chunks(rows: int, bytes_per_row: float = 1) -> Iterator[tuple[int, int]]:
    """(begin, end) of row ranges that are small enough for memory."""
    step = max(1, min(MOVED_EXAMPLES, int(MOVED_BYTES / max(bytes_per_row, 1))))
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)


# Moving rows. Memory maps are opened again for every chunk: their pages count as resident until the map is closed, and
# a scattered chunk may touch one page per row.


def _write_destinations(folder: Path, rank_of_code: np.ndarray, starts: np.ndarray) -> None:
    """Write the row that each example moves to: after the earlier examples of its client."""
    next_row = starts.copy()
    stream = NpyStream(folder / "destinations.npy", np.int64)
    for begin, end in _row_chunks(len(_open_npy(folder / "codes.npy"))):
        ranks = rank_of_code[_open_npy(folder / "codes.npy")[begin:end]]
        by_client = np.argsort(ranks, kind="stable")
        present, firsts, counts = np.unique(ranks[by_client], return_index=True, return_counts=True)
        destinations = np.empty(len(ranks), np.int64)
        destinations[by_client] = np.arange(len(ranks)) + np.repeat(next_row[present] - firsts, counts)
        next_row[present] += counts
        stream.append(destinations)
    stream.close()


def _move_fixed(folder: Path, file_name: str) -> None:
    source, moved = folder / file_name, folder / f"{file_name}.moved"
    array = _open_npy(source)
    _create_zeros_like(moved, array)
    for begin, end in _row_chunks(len(array), array.nbytes / len(array)):
        destinations = _open_npy(folder / "destinations.npy")[begin:end]
        _open_npy(moved, "r+")[destinations] = _open_npy(source)[begin:end]
    moved.replace(source)


def _move_varying(folder: Path, name: str) -> None:
    splits_path, values_path = folder / f"{name}.splits.npy", folder / f"{name}.values.npy"
    moved_splits_path, moved_values_path = folder / f"{name}.splits.moved", folder / f"{name}.values.moved"
    _write_moved_splits(folder, splits_path, moved_splits_path)
    values = _open_npy(values_path)
    _create_zeros_like(moved_values_path, values)
    rows = len(_open_npy(splits_path)) - 1
    for begin, end in _row_chunks(rows, values.nbytes / rows):
        splits = _open_npy(splits_path)[begin : end + 1]
        lengths = np.diff(splits)
        first_targets = _open_npy(moved_splits_path)[_open_npy(folder / "destinations.npy")[begin:end]]
        targets = np.repeat(first_targets - splits[:-1], lengths) + np.arange(splits[0], splits[-1])
        _open_npy(moved_values_path, "r+")[targets] = _open_npy(values_path)[splits[0] : splits[-1]]
    moved_splits_path.replace(splits_path)
    moved_values_path.replace(values_path)


def _write_moved_splits(folder: Path, splits_path: Path, moved_splits_path: Path) -> None:
    """Write each row's length at its new index + 1, then turn the lengths into splits by a running sum in place."""
    splits = _open_npy(splits_path)
    _create_zeros_like(moved_splits_path, splits)
    for begin, end in _row_chunks(len(splits) - 1):
        destinations = _open_npy(folder / "destinations.npy")[begin:end]
        _open_npy(moved_splits_path, "r+")[destinations + 1] = np.diff(_open_npy(splits_path)[begin : end + 1])
    total = 0
    for begin, end in _row_chunks(len(splits)):
        chunk = _open_npy(moved_splits_path, "r+")[begin:end]
        chunk[:] = total + np.cumsum(chunk)
        total = int(chunk[-1])


def _create_zeros_like(path: Path, array: np.ndarray) -> None:
    """Create a file of zeros (sparse until written) with the shape and dtype of `array`."""
    stream = NpyStream(path, array.dtype, array.shape[1:])
    stream.rows = len(array)
    stream.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + array.nbytes)
