"""`ft.data.from_*`: clients from what a user has.

Every function takes the same roles of columns (see `ColumnRoles`). Supervised data gets the columns `x` (images,
or numeric columns side by side) and `y` (labels). The names of classes that were strings are in `classes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedtrue.data import arrow_rows
from fedtrue.data.accept import Clients, as_client_data, from_dicts_unchecked, table_reader
from fedtrue.data.client_data import ClientData
from fedtrue.data.conversion import ColumnRoles, Conversion, in_memory
from fedtrue.data.parts import Label
from fedtrue.data.rows import Rows
from fedtrue.data.sources import Source, open_source

Splits = dict[str, ClientData]
Files = str | Path | Sequence[str | Path]


def from_dicts(clients: Clients, *, label: str | None = None, classes: Sequence[str] | None = None) -> ClientData:
    """Clients from dicts of arrays.

    Args:
        clients: a list with a dict of arrays per client, or a dict from the client's name to its dict of arrays.
        label: a column of strings or numbers that becomes column `y`, with integers for classes.
        classes: the names of the classes in their order, e.g. those of the train data; by default sorted.

    Returns:
        The data. Columns other than the label keep their names.

    >>> clients = {"ann": {"x": [[0.1], [0.2]], "animal": ["cat", "dog"]}, "bob": {"x": [[0.3]], "animal": ["cat"]}}
    >>> data = from_dicts(clients, label="animal")
    >>> data.client(0)["y"], data.classes, list(data.names)
    (array([0, 1], dtype=int32), ['cat', 'dog'], ['ann', 'bob'])
    """
    if label is None:
        return as_client_data(clients)
    data = clients if isinstance(clients, ClientData) else from_dicts_unchecked(clients, "clients")
    rows = Rows(data.columns, "clients")
    part = Label(label, classes)
    part.scan(rows)
    columns = {name: column for name, column in data.columns.items() if name != label}
    numbered = replace(data, columns={**columns, "y": part.codes(rows)}, vocabularies=part.vocabularies())
    return as_client_data(numbered)


def from_pandas(frame: Any, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData:
    """Clients from a pandas DataFrame.

    Args:
        frame: one row per example.
        client: the column that says whose row it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which columns are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data. A single client has no name.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"user": ["b", "a", "b"], "age": [31, 27, 45], "paid": ["yes", "no", "no"]})
    >>> data = from_pandas(frame, client="user", label="paid")
    >>> list(data.names), data.client(1)["x"].tolist(), data.client(1)["y"].tolist(), data.classes
    (['a', 'b'], [[31.0], [45.0]], [1, 0], ['no', 'yes'])
    """
    _check_table("frame", frame, "iloc", "a pandas DataFrame")
    source = Source({"train": lambda: arrow_rows.from_frame(frame)}, [])
    return _only_split(_read(source, client, roles))


def from_arrow(table: Any, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData:
    """Clients from an Arrow table.

    Args:
        table: a `pyarrow.Table` with one row per example.
        client: the column that says whose row it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which columns are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data.

    >>> import pyarrow as pa
    >>> table = pa.table({"user": [1, 2, 2], "pixels": [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]], "digit": [3, 1, 3]})
    >>> from_arrow(table, client="user", label="digit").client(1)["x"].tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    _check_table("table", table, "schema", "an Arrow table")
    classes = arrow_rows.classes_in_schema(table.schema)
    read = lambda: arrow_rows.with_class_names(arrow_rows.from_table(table), classes)
    return _only_split(_read(Source({"train": read}, [], classes=classes), client, roles))


def from_huggingface(dataset: Any, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from a Hugging Face `Dataset` or `DatasetDict`.

    Args:
        dataset: with one row per example. Names of a `ClassLabel` are kept as classes.
        client: the column that says whose row it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which columns are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data; of a `DatasetDict` a dict with the data of each split.

    >>> import datasets
    >>> rows = datasets.Dataset.from_dict({"user": ["a", "b"], "score": [0.5, 0.25], "label": [1, 0]})
    >>> len(from_huggingface(rows, client="user", label="label"))
    2
    """
    splits = dict(dataset) if isinstance(dataset, Mapping) else {"train": dataset}
    for split in splits.values():
        _check_table("dataset", split, "features", "a Hugging Face Dataset, or a DatasetDict")
    classes = arrow_rows.declared_classes(next(iter(splits.values())).features)
    reads = {
        split: lambda rows=rows: arrow_rows.with_class_names(arrow_rows.from_dataset(rows), classes)
        for split, rows in splits.items()
    }
    found = _read(Source(reads, [], classes=classes), client, roles)
    return found if isinstance(dataset, Mapping) else _only_split(found)


def from_csv(files: Files, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from CSV files with a header line; separated by commas, semicolons or tabs, plain or compressed.

    Args:
        files: a file, a list of files, or a folder.
        client: the column that says whose row it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which columns are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data; of a folder with the folders train and test a dict with the data of each.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/visits.csv"
    >>> _ = Path(path).write_text("clinic,age,ill\\nnorth,61,yes\\nsouth,40,no\\nnorth,35,no\\n")
    >>> data = from_csv(path, client="clinic", label="ill")
    >>> list(data.names), data.client(0)["x"].tolist(), data.client(0)["y"].tolist()
    (['north', 'south'], [[61.0], [35.0]], [1, 0])
    """
    return _from_files(files, "csv", client, roles)


def from_json_lines(files: Files, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from files with one JSON object per line, plain or compressed.

    Args:
        files: a file, a list of files, or a folder.
        client: the key that says whose line it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which keys are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data; of a folder with the folders train and test a dict with the data of each.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/posts.jsonl"
    >>> _ = Path(path).write_text('{"user": "ann", "text": "Hello there. Good bye."}\\n')
    >>> data = from_json_lines(path, client="user", text="text")
    >>> data.examples, data.vocabularies["tokens"]  # one example per sentence
    (2, ['bye', 'good', 'hello', 'there'])
    """
    return _from_files(files, "jsonl", client, roles)


def from_parquet(files: Files, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from Parquet files (extra `data`).

    Args:
        files: a file, a list of files, or a folder.
        client: the column that says whose row it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which columns are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data; of a folder with the folders train and test a dict with the data of each.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet
    >>> path = tempfile.mkdtemp() + "/rides.parquet"
    >>> rides = pa.table({"car": ["a", "b", "a"], "km": [1.5, 9.0, 3.0], "cost": [4.5, 20.5, 8.5]})
    >>> pyarrow.parquet.write_table(rides, path)
    >>> from_parquet(path, client="car", label="cost").client(0)["y"].tolist()  # numbers to predict
    [4.5, 8.5]
    """
    return _from_files(files, "parquet", client, roles)


def from_leaf(files: Files, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from files in LEAF's JSON format: FEMNIST, Sent140, CelebA, …

    Args:
        files: a .json file, a list of them, a folder of them, or LEAF's `data` folder with the folders train and test.
        **roles: what x is: `image="x"` for FEMNIST; numbers by default; `text="x"`. The label is y.

    Returns:
        The data, users as clients; of a folder with the folders train and test a dict with the data of each.

    >>> import json, tempfile
    >>> path = tempfile.mkdtemp() + "/femnist.json"
    >>> users = {"f0001": {"x": [[0.0, 1.0, 0.5, 0.0]], "y": [7]}, "f0002": {"x": [[1.0, 1.0, 0.0, 0.0]], "y": [61]}}
    >>> _ = Path(path).write_text(json.dumps({"users": list(users), "num_samples": [1, 1], "user_data": users}))
    >>> from_leaf(path, image="x").columns["x"].shape  # square images
    (2, 2, 2, 1)
    """
    return _from_files(files, "leaf", None, roles)


def from_images(folder: str | Path, *, client: str | None = None, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from a folder or tar archive of images, one folder per class.

    Args:
        folder: `<class>/<name>.jpg`, or `<client>/<class>/<name>.jpg`, or `train/<class>/<name>.jpg` and `test/…`.
        client: "folder" if the outer folders are clients; None: a single client, to be partitioned.
        **roles: `image_shape` to resize all images, `classes` for the order of the classes.

    Returns:
        The data, x from 0 to 1; a dict with the data of each split if there are the folders train and test.

    >>> import tempfile, PIL.Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     PIL.Image.new("RGB", (4, 4)).save(folder / name / "1.png")
    >>> data = from_images(folder)
    >>> data.columns["x"].shape, data.classes
    ((2, 4, 4, 3), ['cat', 'dog'])
    """
    return _from_files(folder, "images", client, roles)


def from_npz(file: str | Path, *, client: str | None, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from a NumPy archive, as `numpy.savez` writes it.

    Args:
        file: arrays with one row per example; or those of the splits, as x_train, y_train, x_test, y_test.
        client: the array that says whose row it is; None: a single client, to be partitioned (`ft.data.partition`).
        **roles: which arrays are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data; a dict with the data of each split if there are several.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/digits.npz"
    >>> np.savez(path, pixels=np.zeros((3, 28, 28), np.uint8), digit=np.array([7, 2, 1]), writer=np.array([0, 1, 0]))
    >>> from_npz(path, client="writer", image="pixels", label="digit").client(0)["y"].tolist()
    [7, 1]
    """
    return _from_files(file, "npz", client, roles)


def from_tff(files: Files, **roles: Unpack[ColumnRoles]) -> ClientData | Splits:
    """Clients from TensorFlow Federated's files: SQLite with all splits, or HDF5 with one.

    Args:
        files: `NAME.sqlite`, `NAME.sqlite.lzma` or `NAME_train.h5`.
        **roles: which features are what: label, features, ignore, image, image_shape, text, tags, words, classes.

    Returns:
        The data; of a SQLite file with several splits a dict with the data of each.

    >>> import h5py, tempfile
    >>> path = tempfile.mkdtemp() + "/fed_emnist_train.h5"
    >>> with h5py.File(path, "w") as file:
    ...     file["examples/f0001/pixels"] = np.zeros((2, 28, 28), np.float32)
    ...     file["examples/f0001/label"] = np.array([3, 9])
    >>> from_tff(path, image="pixels", label="label").columns["x"].shape
    (2, 28, 28, 1)
    """
    return _from_files(files, "tff", None, roles)


def _check_table(argument: str, table: Any, attribute: str, wanted: str) -> None:
    """Refuses what lacks this attribute, which every table of the wanted type has."""
    if not hasattr(table, attribute):
        kind = "None" if table is None else f"a {type(table).__name__}"
        cure = f"give {wanted}, or use {table_reader(table) or 'ft.data.from_dicts({NAME: {COLUMN: ARRAY}})'}"
        raise ValueError(f"{argument} is {kind}: {cure}")


def _from_files(files: Files, file_format: str, client: str | None, roles: ColumnRoles) -> ClientData | Splits:
    paths = [files] if isinstance(files, str | Path) else list(files)
    if not paths:
        raise ValueError("no files: give at least one")
    found = _read(open_source(paths, file_format), client, roles)
    return _only_split(found) if len(found) == 1 else found


def _read(source: Source, client: str | None, roles: ColumnRoles) -> Splits:
    conversion = Conversion(source.roles_with(client=client, **roles), source.folder)
    return {split: _with_unit_pixels(data) for split, data in in_memory(conversion, source.splits).items()}


def _only_split(splits: Splits) -> ClientData:
    (data,) = splits.values()
    return data


def _with_unit_pixels(data: ClientData) -> ClientData:
    """Pixels from 0 to 255 as numbers from 0 to 1, which is what models take."""
    x = data.columns.get("x")
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8:
        return data
    return replace(data, columns={**data.columns, "x": x.astype(np.float32) / 255})
