"""What clients keep between rounds (control variates, inherited optimizer states), indexed by client.

On the device while it is small: one row per client. Else on the host, with rows only for clients that have taken part;
the rows of the clients of the next rounds travel to the device and back.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.engine.capacity import tree_bytes

ROWS_AT_ONCE = 512  # at most; so that one compiled gather serves every checkpoint
BYTES_AT_ONCE = (
    16e6  # of rows on their way: malloc reuses freed arrays up to 32 MB; others get fresh pages, which are slow
)


class HostMemory:
    """Rows of clients on the host. It is changed in place: a state that holds it can be used once, as donated ones."""

    def __init__(self, clients: int, first_rows: Callable[[np.ndarray], Any], axis: int = 0):
        self.clients = clients
        self.axis = axis  # of clients in every leaf: 1 where many runs train together
        self.rows: dict[int, Any] = {}  # client → its row, an array of length 1 along the axis; of those that took part
        self._first_rows = first_rows  # clients → the rows of clients that never took part
        self._row = jax.eval_shape(first_rows, np.zeros(1, np.int64))
        self._rows_at_once = min(clients, ROWS_AT_ONCE, max(1, int(BYTES_AT_ONCE // tree_bytes(self._row))))

    def read(self, clients: np.ndarray) -> Any:
        """The rows of these clients, in their order; a client that never took part gets its first row."""
        new = np.array([client for client in clients.tolist() if client not in self.rows], np.int64)
        first = dict[int, Any]()
        for places in self.blocks(len(new)):
            first |= self._by_client(new[places], jax.tree.map(np.asarray, self._first_rows(new[places])))
        rows = [self.rows[client] if client in self.rows else first[client] for client in clients.tolist()]
        return jax.tree.map(lambda *parts: np.concatenate(parts, self.axis), self.zeros(0, np), *rows)

    def write(self, clients: np.ndarray, rows: Any) -> None:
        """Replaces the rows of these clients."""
        for client, row in self._by_client(clients, rows).items():
            if client in self.rows:
                jax.tree.map(np.copyto, self.rows[client], row)
            else:
                self.rows[client] = jax.tree.map(np.array, row)

    def blocks(self, count: int) -> np.ndarray:
        """0, …, count − 1 in blocks of equal size, for programs of fixed shapes; the last one begins again with 0."""
        return np.resize(np.arange(count), (-(-count // self._rows_at_once), self._rows_at_once))

    def zeros(self, rows: int, numpy: Any) -> Any:
        """So many rows of zeros, on the host (`np`) or on the device (`jnp`)."""

        def leaf_of(row: Any) -> Any:
            return numpy.zeros((*row.shape[: self.axis], rows, *row.shape[self.axis + 1 :]), row.dtype)

        return jax.tree.map(leaf_of, self._row)

    def _by_client(self, clients: np.ndarray, rows: Any) -> dict[int, Any]:
        part = lambda i: jax.tree.map(lambda leaf: leaf[_along(np.s_[i : i + 1], self.axis)], rows)
        return {client: part(i) for i, client in enumerate(clients.tolist())}


def to_device(memory: HostMemory, clients: np.ndarray, buffer_rows: int) -> tuple[Any, Any]:
    """(rows in a buffer of fixed size, client → its row): what a dispatch over these clients needs."""
    rows = np.zeros(memory.clients, np.int32)
    rows[clients] = np.arange(len(clients))
    buffer = memory.zeros(buffer_rows, jnp)
    for places in memory.blocks(len(clients)):
        buffer = _put_on_device(buffer, places, memory.read(clients[places]), memory.axis)
    return buffer, jnp.asarray(rows)


def from_device(memory: HostMemory, clients: np.ndarray, buffer: Any) -> None:
    """The way back, after the dispatch."""
    for places in memory.blocks(len(clients)):
        rows = _take_on_device(buffer, places, memory.axis)
        memory.write(clients[places], jax.tree.map(np.asarray, rows))


def with_rows(memory: Any, clients: np.ndarray, rows: Any, axis: int = 0) -> Any:
    """The memory with the rows of these clients replaced."""
    if isinstance(memory, HostMemory):
        memory.write(clients, rows)
        return memory

    def replaced(everyone: Any, own: Any) -> Any:
        copied = np.array(everyone)
        copied[_along(clients, axis)] = own
        return copied

    return jax.tree.map(replaced, memory, rows)


def rows_of(memory: Any, clients: np.ndarray, axis: int = 0) -> Any:
    """These clients' rows, on the host; on a device they are gathered there, so that the rest stays where it is."""
    if isinstance(memory, HostMemory):
        return memory.read(clients)
    blocks = [clients[i : i + ROWS_AT_ONCE] for i in range(0, len(clients), ROWS_AT_ONCE)]

    def gathered(rows: Any) -> np.ndarray:
        found = [_block(rows, block, axis) for block in blocks]
        return np.concatenate(found, axis) if found else np.asarray(jnp.take(rows, clients, axis))

    return jax.tree.map(gathered, memory)


def _block(rows: Any, clients: np.ndarray, axis: int) -> np.ndarray:
    padded = np.resize(clients, ROWS_AT_ONCE)
    taken = np.asarray(_take_on_device(rows, padded, axis))
    return taken[_along(np.s_[: len(clients)], axis)]


def _along(rows: Any, axis: int) -> tuple[Any, ...]:
    """The index of these rows along an axis."""
    return (*[np.s_[:]] * axis, rows)


@partial(jax.jit, static_argnums=2)
def _take_on_device(rows: Any, places: Any, axis: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.take(leaf, places, axis, mode="clip"), rows)


@partial(jax.jit, static_argnums=3, donate_argnums=0)
def _put_on_device(buffer: Any, places: Any, rows: Any, axis: int) -> Any:
    return jax.tree.map(lambda leaf, own: leaf.at[_along(places, axis)].set(own), buffer, rows)
