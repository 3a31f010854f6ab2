"""What is wrong with a column, in one line that names the client."""

from collections.abc import Callable

import numpy as np

from fedtrue.data.client_data import ClientData, Ragged

ROWS_AT_ONCE = 65_536  # read from a memory-mapped column; checks need no more memory however large it is


def refuse_rows(
    data: ClientData, name: str, is_wrong: Callable[[np.ndarray], np.ndarray], what: str, cure: str
) -> None:
    """Raises a ValueError for the first example of a client with a wrong value; `{}` in `what` is the value."""
    column = data.columns[name]
    if isinstance(column, Ragged):
        return
    for first in range(0, len(column), ROWS_AT_ONCE):
        rows = np.asarray(column[first : first + ROWS_AT_ONCE])
        wrong = is_wrong(rows)
        if not wrong.any():
            continue
        for row in np.flatnonzero(wrong.reshape(len(rows), -1).any(axis=1)):
            owner = np.flatnonzero((data.starts <= first + row) & (first + row < data.starts + data.sizes))
            if len(owner):
                client, value = data.client_ids[int(owner[0])], rows[row][wrong[row]].flat[0]
                raise ValueError(f"client {client!r} has {what.format(value)} in column {name!r}: {cure}")


def check_label_range(data: ClientData, name: str, classes: int, ignored: int | None) -> None:
    """Refuses labels outside 0 … classes − 1."""

    def is_outside(labels: np.ndarray) -> np.ndarray:
        outside = (labels < 0) | (labels >= classes)
        return outside if ignored is None else outside & (labels != ignored)

    if data.columns[name].dtype.kind != "b":
        cure = f"the model has {classes} outputs, so labels go from 0 to {classes - 1}"
        refuse_rows(data, name, is_outside, "label {}", cure)


def check_same_columns(data: ClientData, train: ClientData, split: str) -> None:
    """Refuses held-out data whose examples have another shape than those in training."""
    for name, here in data.columns.items():
        there = train.columns[name]
        shapes = [column.shape[1:] if isinstance(column, np.ndarray) else "ragged" for column in (here, there)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"column {name!r} has examples of shape {shapes[0]} in {split} but {shapes[1]} in train")
