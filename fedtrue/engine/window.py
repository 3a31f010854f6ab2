"""Data that does not fit on the device: the rows of the clients of the next rounds, in buffers of fixed size.

The program draws the same cohorts whether its columns hold everyone or only a window; `starts` says where a client's
rows are. So the host can fill the next window while the device computes on the current one.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedtrue.data.batches import DeviceRagged
from fedtrue.data.client_data import ClientData, Column, Ragged

WINDOW_BYTES = 256e6  # of one window; two are alive at a time


class Window:
    """Buffers for `rounds` rounds of `places` clients: fixed shapes, so that all windows run through one program."""

    def __init__(self, data: ClientData, places: int, rounds: int):
        self.data = data
        self.rows = rounds * places * int(data.sizes.max())

    def filled(self, clients: np.ndarray) -> tuple[dict[str, Any], Any]:
        """(columns, starts) on the device: the rows of these clients, and where each client's begin."""
        present = np.unique(clients)
        sizes = self.data.sizes[present]
        begins = np.cumsum(sizes) - sizes
        rows = np.repeat(self.data.starts[present] - begins, sizes) + np.arange(sizes.sum())
        starts = np.zeros(len(self.data), np.int32)
        starts[present] = begins
        return {name: self._column(column, rows) for name, column in self.data.columns.items()}, jnp.asarray(starts)

    def _column(self, column: Column, rows: np.ndarray) -> Any:
        if isinstance(column, Ragged):
            lengths = np.asarray(column.splits[rows + 1]) - np.asarray(column.splits[rows])
            splits = np.zeros(self.rows + 1, np.int32)
            splits[1 : len(rows) + 1] = np.cumsum(lengths)
            places = np.repeat(np.asarray(column.splits[rows]) - splits[: len(rows)], lengths) + np.arange(
                lengths.sum()
            )
            values = np.zeros(self.rows * column.width, column.dtype)
            values[: len(places)] = column.values[places]
            return DeviceRagged(jnp.asarray(values), jnp.asarray(splits), column.width)
        buffer = np.zeros((self.rows, *column.shape[1:]), column.dtype)
        buffer[: len(rows)] = column[rows]
        return jnp.asarray(buffer)


def window_rounds(data: ClientData, places: int, most_rounds: int, window_bytes: float = WINDOW_BYTES) -> int:
    """How many rounds of `places` clients fit into a window, at least one."""
    row_bytes = sum(_row_bytes(column) for column in data.columns.values())
    return int(np.clip(window_bytes // (places * int(data.sizes.max()) * row_bytes), 1, most_rounds))


def column_bytes(data: ClientData) -> int:
    """What all columns would take on a device."""
    return sum(
        column.values.nbytes + column.splits.nbytes if isinstance(column, Ragged) else column.nbytes
        for column in data.columns.values()
    )


def _row_bytes(column: Column) -> int:
    if isinstance(column, Ragged):
        return column.width * column.dtype.itemsize + 4
    return int(np.prod(column.shape[1:], initial=1)) * column.dtype.itemsize
