"""Rows of Arrow tables, Parquet files, Hugging Face data sets (in memory or as `save_to_disk` writes them) and pandas.

pyarrow is imported only when a table is read: `pip install 'fedtrue[data]'`. A pandas frame needs only pandas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.data.rows import Rows, rows_per_chunk

STREAMED_ROWS = 1024  # per chunk, of a file
HUGGINGFACE_METADATA = b"huggingface"


def pyarrow() -> Any:
    """The module; without it a ValueError that says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ValueError("Arrow and Parquet need pyarrow: pip install 'fedtrue[data]'") from None
    return pyarrow


def from_table(table: Any, where: str = "the table") -> Iterator[Rows]:
    """Yield the rows of an Arrow table, a record batch, or an iterable of record batches."""
    pa = pyarrow()
    if isinstance(table, pa.Table):
        table = table.to_batches(STREAMED_ROWS)
    batches = [table] if isinstance(table, pa.RecordBatch) else table
    first = 1
    for batch in batches:
        if batch.num_rows:
            names, columns = _unique_names(batch.schema.names, where), batch.columns
            yield Rows({name: values(column) for name, column in zip(names, columns)}, where, first)
            first += batch.num_rows


def from_parquet(path: Path) -> Iterator[Rows]:
    """Yield the rows of a Parquet file, a few thousand at a time."""
    with _parquet_file(path) as file:
        yield from from_table(file.iter_batches(STREAMED_ROWS), str(path))


def classes_in_parquet(path: Path) -> dict[str, list[str]]:
    """The classes that a Hugging Face data set wrote into a Parquet file."""
    with _parquet_file(path) as file:
        return classes_in_schema(file.schema_arrow)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    pa = pyarrow()
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is not a readable Parquet file ({_first_line(error)}): write it again") from None


def from_stream_file(path: Path) -> Iterator[Rows]:
    """Yield the rows of an Arrow stream file, as `Dataset.save_to_disk` writes them."""
    pa = pyarrow()
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            yield from from_table(reader, str(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is not a readable Arrow stream ({_first_line(error)}): save it again") from None


def from_dataset(dataset: Any, where: str = "the data set") -> Iterator[Rows]:
    """Yield the rows of a Hugging Face `Dataset`, those it has been filtered or shuffled to."""
    first = 1
    for table in dataset.with_format("arrow").iter(batch_size=STREAMED_ROWS):
        for rows in from_table(table, where):
            yield Rows(rows.columns, where, first + rows.first - 1)
        first += table.num_rows


def with_class_names(chunks: Iterable[Rows], classes: Mapping[str, Sequence[str]]) -> Iterator[Rows]:
    """Rows whose columns of class numbers hold the names of the classes instead; −1 and null stand for no label."""
    for rows in chunks:
        named = {name: _names_of(rows, name, names) for name, names in classes.items() if name in rows.columns}
        yield Rows({**rows.columns, **named}, rows.where, rows.first)


def _names_of(rows: Rows, name: str, names: Sequence[str]) -> list[str | None]:
    return [names[int(code)] if 0 <= code < len(names) else None for code in rows.column(name)]


def from_frame(frame: Any, where: str = "the frame") -> Iterator[Rows]:
    """Yield the rows of a pandas frame."""
    names = _unique_names([str(name) for name in frame.columns], where)
    step = rows_per_chunk(len(names))
    for start in range(0, len(frame), step):
        part = frame.iloc[start : start + step]
        yield Rows({name: part.iloc[:, i].to_numpy() for i, name in enumerate(names)}, where, start + 1)


def declared_classes(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Column → names of its classes, from the features of a Hugging Face data set (its own, or as JSON)."""
    found = {}
    for column, feature in features.items():
        names = feature.get("names") if isinstance(feature, Mapping) else getattr(feature, "names", None)
        if isinstance(names, Sequence) and not isinstance(names, str):
            found[column] = list(names)
    return found


def classes_in_schema(schema: Any) -> dict[str, list[str]]:
    """The classes that a Hugging Face data set wrote into an Arrow schema or a Parquet file."""
    metadata = (schema.metadata or {}).get(HUGGINGFACE_METADATA)
    return declared_classes(json.loads(metadata).get("info", {}).get("features", {})) if metadata else {}


def values(column: Any) -> Any:
    """An Arrow column as an array of numbers, or as a list of Python values."""
    pa = pyarrow()
    types = pa.types
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type):
        return column.to_numpy(zero_copy_only=False)
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        stacked = _stacked(column)
        return column.to_pylist() if stacked is None else stacked
    return column.to_pylist()


def _stacked(column: Any) -> np.ndarray | None:
    """Lists of numbers, all of one length, as one array (rows, …); None if they are something else."""
    if column.null_count or not len(column):
        return None
    inner = values(column.flatten())
    if not isinstance(inner, np.ndarray) or len(inner) % len(column):
        return None
    length = len(inner) // len(column)
    if any(len(row) != length for row in column):
        return None
    return inner.reshape(len(column), length, *inner.shape[1:])


def _unique_names(names: Iterable[str], where: str) -> list[str]:
    names = list(names)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{where} has two columns named {twice!r}: rename one")
    return names


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
