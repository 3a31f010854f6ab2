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

ROWS_AT_ONCE = 512  # so that one compiled gather serves every checkpoint


class HostMemory:
    """Rows of clients on the host. It is changed in place: a state that holds it can be used once, as donated ones."""

    def __init__(self, clients: int, first_rows: Callable[[np.ndarray], Any], axis: int = 0):
        self.slots = np.full(clients, -1, np.int64)  # client → row of `rows`, −1: it never took part
        self.axis = axis  # of clients in every leaf: 1 where many runs train together
        self._first_rows = first_rows  # clients → the rows of clients that never took part
        self._rows: Any = None
        self._used = 0

    def read(self, clients: np.ndarray) -> Any:
        """The rows of these clients, in their order; a client that never took part gets its first row."""
        rows = jax.tree.map(np.array, self._first_rows(clients))
        known = np.flatnonzero(self.slots[clients] >= 0)
        if len(known):
            source = self.slots[clients[known]]
            jax.tree.map(lambda new, old: _put(new, known, _take(old, source, self.axis), self.axis), rows, self._rows)
        return rows

    def write(self, clients: np.ndarray, rows: Any) -> None:
        """Replaces the rows of these clients, each of them once."""
        new = clients[self.slots[clients] < 0]
        self.slots[new] = np.arange(self._used, self._used + len(new))
        self._used += len(new)
        self._rows = self._grown(rows)
        slots = self.slots[clients]
        jax.tree.map(lambda all_rows, own: _put(all_rows, slots, np.asarray(own), self.axis), self._rows, rows)

    def _grown(self, like: Any) -> Any:
        """Rows for all clients seen; their number doubles when they run out."""
        capacity = 0 if self._rows is None else jax.tree.leaves(self._rows)[0].shape[self.axis]
        if capacity >= self._used:
            return self._rows
        size = min(max(2 * capacity, self._used), len(self.slots))

        def grown(leaf: Any, old: Any = None) -> np.ndarray:
            shape = (*leaf.shape[: self.axis], size, *leaf.shape[self.axis + 1 :])
            larger = np.zeros(shape, leaf.dtype)
            if old is not None:
                _put(larger, np.arange(capacity), old, self.axis)
            return larger

        return jax.tree.map(grown, like) if self._rows is None else jax.tree.map(grown, like, self._rows)


def _take(leaf: np.ndarray, rows: np.ndarray, axis: int) -> np.ndarray:
    return np.take(leaf, rows, axis)


def _put(leaf: np.ndarray, rows: np.ndarray, values: np.ndarray, axis: int) -> None:
    leaf[(np.s_[:],) * axis + (rows,)] = values


def to_device(memory: HostMemory, clients: np.ndarray, buffer_rows: int) -> tuple[Any, Any]:
    """(rows in a buffer of fixed size, client → its row): what a dispatch over these clients needs."""
    padded = np.resize(clients, buffer_rows)  # repeated clients fill the buffer; their rows are never read
    rows = np.zeros(len(memory.slots), np.int32)
    rows[clients] = np.arange(len(clients))
    return jax.tree.map(jnp.asarray, memory.read(padded)), jnp.asarray(rows)


def from_device(memory: HostMemory, clients: np.ndarray, buffer: Any) -> None:
    """The way back, after the dispatch."""
    memory.write(
        clients, jax.tree.map(lambda leaf: _take(np.asarray(leaf), np.arange(len(clients)), memory.axis), buffer)
    )


def with_rows(memory: Any, clients: np.ndarray, rows: Any, axis: int = 0) -> Any:
    """The memory with the rows of these clients replaced."""
    if isinstance(memory, HostMemory):
        memory.write(clients, rows)
        return memory

    def replaced(everyone: Any, own: Any) -> Any:
        copied = np.array(everyone)
        _put(copied, clients, own, axis)
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
    return taken[(np.s_[:],) * axis + (np.s_[: len(clients)],)]


_take_on_device = jax.jit(partial(jnp.take, mode="clip"), static_argnums=2)
