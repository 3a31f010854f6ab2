"""Turns what a user has into `ClientData`, or says in one line what to do instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedtrue.data.client_data import ClientData
from fedtrue.names import suggestion

TABLE_READERS = {  # package of a type → the call that makes clients of it
    "pandas": "ft.data.from_pandas(table, client=COLUMN, label=COLUMN)",
    "polars": "ft.data.from_arrow(table.to_arrow(), client=COLUMN, label=COLUMN)",
    "pyarrow": "ft.data.from_arrow(table, client=COLUMN, label=COLUMN)",
    "datasets": "ft.data.from_huggingface(dataset, client=COLUMN, label=COLUMN)",
}
Clients = ClientData | Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
BATCH_KEYS = ("mask", "key")  # a batch has these besides the columns


def as_client_data(clients: Clients, what: str = "clients", columns: Sequence[str] | None = None) -> ClientData:
    """The data of many clients from what a user has.

    Args:
        clients: `ClientData`, a list of dicts of arrays (one dict per client), or a dict from the client's name to its
            dict of arrays. The leading axis of an array counts examples.
        what: the name of the argument, for errors.
        columns: those that are wanted; others are left out, whatever they hold. By default all.

    Returns:
        The data. Anything else, a column of strings, columns of unequal length, a client without examples, NaN and
        infinity raise a ValueError that names the client, the column and the cure.

    >>> data = as_client_data({"ann": {"x": [[1.0], [2.0]]}, "bob": {"x": [[3.0]]}})
    >>> len(data), list(data.names)
    (2, ['ann', 'bob'])
    """
    data = clients if isinstance(clients, ClientData) else from_dicts_unchecked(clients, what)
    if columns is not None:
        data = _with_columns(data, columns, what)
    _check_columns(data, what)
    return data


def check_same_classes(train: ClientData, test: ClientData | None, what: str = "test") -> None:
    """Refuses two data sets whose labels stand for different classes."""
    first, second = train.classes, None if test is None else test.classes
    if first is not None and second is not None and list(first) != list(second):
        raise ValueError(
            f"the labels of clients and {what} stand for different classes ({', '.join(first[:5])} … and "
            f"{', '.join(second[:5])} …): read {what} with classes=train.classes"
        )


def from_dicts_unchecked(clients: Any, what: str) -> ClientData:
    """The data of a list or dict of clients; columns may still hold strings or NaN."""
    if reader := table_reader(clients):
        raise ValueError(f"{what} is a {type(clients).__name__}, which does not say whose rows are whose: use {reader}")
    if isinstance(clients, Mapping):
        if clients and not any(isinstance(client, Mapping) or table_reader(client) for client in clients.values()):
            columns = ", ".join(map(str, clients))
            raise ValueError(f"{what} is one dict of columns ({columns}): put it into a list, one dict per client")
        names: list[str] | None = [str(name) for name in clients]
        clients = list(clients.values())
    else:
        names = None
    if not isinstance(clients, Sequence) or isinstance(clients, str | bytes):
        kind = type(clients).__name__
        raise ValueError(f"{what} has the type {kind}: give a list of dicts of arrays, one dict per client")
    for position, client in enumerate(clients):
        if not isinstance(client, Mapping):
            owner = position if names is None else repr(names[position])
            raise ValueError(
                f"{what}: client {owner} has the type {type(client).__name__}: give a dict from column names to arrays"
            )
    return ClientData.from_clients(clients, names)


def _with_columns(data: ClientData, names: Sequence[str], what: str) -> ClientData:
    for name in names:
        if name not in data.columns:
            there = ", ".join(map(repr, data.columns))
            raise ValueError(f"{what}: there is no column {name!r}{suggestion(name, data.columns)}; there are {there}")
    return replace(data, columns={name: data.columns[name] for name in names})


def table_reader(value: Any) -> str | None:
    """The call that makes clients of this kind of table; None if it is no table that we know."""
    packages = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    if type(value).__name__ in ("DatasetDict", "IterableDatasetDict"):  # a dict by its base class
        packages.add("datasets")
    return next((call for package, call in TABLE_READERS.items() if package in packages), None)


def _check_columns(data: ClientData, what: str) -> None:
    for name, column in data.columns.items():
        if name in BATCH_KEYS:
            raise ValueError(f"{what}: the column name {name!r} is used by batches themselves: rename the column")
        if column.dtype.kind not in "biuf":
            raise ValueError(_not_numbers(data, name, what))
        if isinstance(column, np.ndarray) and not isinstance(column, np.memmap):  # files were checked when written
            _check_finite(data, name, column, what)


def _check_finite(data: ClientData, name: str, column: np.ndarray, what: str) -> None:
    if column.dtype.kind != "f" or np.isfinite(column).all():
        return
    bad_rows = np.flatnonzero(~np.isfinite(column).reshape(len(column), -1).all(axis=1))
    for client, (start, size) in enumerate(zip(data.starts, data.sizes)):
        if len(inside := bad_rows[(bad_rows >= start) & (bad_rows < start + size)]):
            owner = repr(data.client_ids[client]) if data.named else client
            is_nan = np.isnan(column[inside[0]]).any()
            problem, cure = ("NaN", "fill it in") if is_nan else ("infinite", "correct it")
            raise ValueError(
                f"{what}: column {name!r} of client {owner} is {problem} in example {inside[0] - start}: "
                f"{cure} or leave the example out"
            )


def _not_numbers(data: ClientData, name: str, what: str) -> str:
    column = data.columns[name]
    if column.dtype.kind not in "US":
        return f"{what}: column {name!r} has the dtype {column.dtype}: give numbers"
    first = column[int(data.starts[0])]
    cure = f"number the classes with ft.data.from_dicts(…, label={name!r}), or leave the column out"
    return f"{what}: column {name!r} holds strings such as {str(np.ravel(first)[0])!r}, but models take numbers: {cure}"
