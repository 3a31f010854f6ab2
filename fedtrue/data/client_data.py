"""The data of many clients in flat arrays. A client is a start and a size, so a view of the data copies no example.

columns["x"]   |  a a a | b | c c c c c |      one row per example, usually memory-mapped
starts, sizes     0,3     3,1  4,5             client → its rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in one flat array: row r is `values[splits[r]:splits[r + 1]]`.

    >>> rows = Ragged.from_rows([np.array([1, 2]), np.array([3])])
    >>> rows[1].tolist(), rows.padded([0, 1]).tolist()
    ([3], [[1, 2], [3, 0]])
    """

    values: np.ndarray
    splits: np.ndarray
    width: int  # the length of the longest row

    @classmethod
    def from_rows(cls, rows: Sequence[np.ndarray]) -> Ragged:
        """Join a list of 1-d arrays. It must not be empty: the first row determines the dtype."""
        lengths = np.array([len(row) for row in rows], np.int64)
        return cls(np.concatenate(rows), np.concatenate([[0], np.cumsum(lengths)]), int(lengths.max()))

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __repr__(self) -> str:
        return f"Ragged({len(self):,} rows of {self.dtype}, at most {self.width} long)"

    def __getitem__(self, row: int) -> np.ndarray:
        row = range(len(self))[row]  # as for lists: negative counts from the end, IndexError outside
        return self.values[self.splits[row] : self.splits[row + 1]]

    def padded(self, rows: np.ndarray | Sequence[int], fill: float | int = 0) -> np.ndarray:
        """The given rows as one array (rows, width), the shorter ones filled up with `fill`."""
        rows = np.asarray(rows, np.int64)
        starts, stops = np.asarray(self.splits[rows]), np.asarray(self.splits[rows + 1])
        is_value = np.arange(self.width) < (stops - starts)[:, None]
        result = np.full((len(rows), self.width), fill, self.dtype)
        result[is_value] = self.values[(starts[:, None] + np.arange(self.width))[is_value]]
        return result


Column = np.ndarray | Ragged
SHOWN_NAMES = 5  # of clients, in a repr


@dataclass(frozen=True)
class ClientIds(Sequence[str]):
    """Client names, stored as bytes (memory-mapped) and decoded one at a time on access."""

    utf8: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    @classmethod
    def from_names(cls, names: Iterable[str]) -> ClientIds:
        """Encode a list of names."""
        encoded = [name.encode() for name in names]
        stops = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        return cls(
            np.frombuffer(b"".join(encoded), np.uint8), np.concatenate([[0], stops[:-1]]).astype(np.int64), stops
        )

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"ClientIds({len(self):,}: {self.first_few()})" if len(self) else "ClientIds(0)"

    def first_few(self) -> str:
        """The first names, for people."""
        shown = [repr(name) for name in self[:SHOWN_NAMES]]
        return ", ".join([*shown, *["…"][: len(self) > SHOWN_NAMES]])

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> ClientIds: ...
    def __getitem__(self, index: int | slice) -> str | ClientIds:
        if isinstance(index, slice):
            return ClientIds(self.utf8, self.starts[index], self.stops[index])
        index = range(len(self))[index]
        return self.utf8[self.starts[index] : self.stops[index]].tobytes().decode()

    def subset(self, indices: np.ndarray) -> ClientIds:
        """The names at `indices`, in that order."""
        return ClientIds(self.utf8, self.starts[indices], self.stops[indices])


@dataclass(frozen=True)
class Statistics:
    """The number of clients, of examples, and the distribution of examples per client."""

    clients: int
    examples: int
    smallest: int  # this and the following: examples per client
    percentile_10: float
    median: float
    mean: float
    percentile_90: float
    largest: int


@dataclass(frozen=True)
class ClientData:
    """The examples of many clients. Views (`take`, `subset`, the splits) share the columns and copy no example.

    Build it with `from_clients`:

    >>> data = ClientData.from_clients([{"x": np.array([1.0, 2.0])}, {"x": np.array([3.0])}], ["ann", "bob"])
    >>> len(data), data.examples, data.client_ids[1]
    (2, 3, 'bob')
    """

    columns: Mapping[str, Column]  # one row per example, the rows of each client together
    starts: np.ndarray  # int64[clients]
    sizes: np.ndarray  # int64[clients], each at least 1
    client_ids: ClientIds
    named: bool = True  # False: the ids are the numbers of clients that have no names
    vocabularies: Mapping[str, Sequence[str]] = field(default_factory=dict)  # column → what its integers stand for

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.sizes) == len(self.client_ids):
            raise ValueError(
                f"{len(self.starts)} starts, {len(self.sizes)} sizes and {len(self.client_ids)} client ids: "
                "give one of each per client"
            )
        if not len(self.starts):
            raise ValueError("no clients: give at least one")
        if self.sizes.min() < 1:
            raise ValueError(f"client {int(self.sizes.argmin())} has no examples: leave it out")

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.starts)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {_described(column)}" for name, column in self.columns.items())
        clients, examples = _counted(len(self), "client"), _counted(self.examples, "example")
        return f"ClientData({clients} {self.client_ids.first_few()}; {examples} of {columns})"

    @property
    def examples(self) -> int:
        """The total number of examples of all clients."""
        return int(self.sizes.sum())

    @property
    def names(self) -> ClientIds | None:
        """The names of the clients; None if they have none."""
        return self.client_ids if self.named else None

    @property
    def classes(self) -> Sequence[str] | None:
        """The names of the labels 0, 1, … in column `y`; None if the labels came as numbers."""
        return self.vocabularies.get("y")

    def client(self, index: int) -> dict[str, np.ndarray | list[np.ndarray]]:
        """The examples of one client.

        Args:
            index: from 0 to `len(self) - 1`; negative counts from the end.

        Returns:
            One array per column; for a ragged column a list of 1-d arrays, one per example.

        >>> ClientData.from_clients([{"x": np.array([1.0, 2.0])}]).client(0)
        {'x': array([1., 2.])}
        """
        index = range(len(self))[index]
        start, stop = int(self.starts[index]), int(self.starts[index] + self.sizes[index])
        return {name: _rows_between(column, start, stop) for name, column in self.columns.items()}

    def values(self, column: str) -> np.ndarray:
        """The values of a column, client after client: in the order in which `regrouped` counts examples.

        Args:
            column: the name of a column that is not ragged.

        Returns:
            One entry per example.

        >>> ClientData.from_clients([{"y": np.array([5, 6])}, {"y": np.array([7])}]).subset([1, 0]).values("y")
        array([7, 5, 6])
        """
        return np.asarray(self.columns[column])[self._rows()]

    def _rows(self) -> np.ndarray:
        """The rows of all examples, client after client."""
        return np.concatenate([start + np.arange(size) for start, size in zip(self.starts, self.sizes)])

    def take(self, examples_per_client: int) -> ClientData:
        """At most the first `examples_per_client` examples of each client.

        >>> ClientData.from_clients([{"x": np.arange(5)}, {"x": np.arange(1)}]).take(2).sizes.tolist()
        [2, 1]
        """
        if examples_per_client < 1:
            raise ValueError(f"take({examples_per_client}) would leave clients without examples: take at least 1")
        return replace(self, sizes=np.minimum(self.sizes, examples_per_client))

    def subset(self, client_indices: np.ndarray | Sequence[int]) -> ClientData:
        """The clients at these indices, in this order.

        >>> data = ClientData.from_clients([{"x": np.arange(5)}, {"x": np.arange(2)}, {"x": np.arange(1)}])
        >>> list(data.subset([2, 0]).client_ids)
        ['2', '0']
        """
        indices = np.asarray(client_indices, np.int64).reshape(-1)
        outside = indices[(indices < 0) | (indices >= len(self))]
        if len(outside):
            raise ValueError(f"there is no client {outside[0]}: use indices from 0 to {len(self) - 1}")
        ids = self.client_ids.subset(indices)
        return replace(self, starts=self.starts[indices], sizes=self.sizes[indices], client_ids=ids)

    def split_clients(self, fraction: float, seed: int) -> tuple[ClientData, ClientData]:
        """Split the clients at random into two parts, e.g. to hold some out for validation.

        Args:
            fraction: of the clients that go to the first part, between 0 and 1.
            seed: determines which clients. The same seed gives the same split.

        Returns:
            (first, second): both keep the order of the clients, neither is empty.

        >>> data = ClientData.from_clients([{"x": np.arange(3)}] * 10)
        >>> validation, train = data.split_clients(0.2, seed=0)
        >>> len(validation), len(train)
        (2, 8)
        """
        _check_fraction(fraction)
        if len(self) < 2:
            raise ValueError("a single client cannot be split into two parts: use split_within")
        first_count = min(max(round(fraction * len(self)), 1), len(self) - 1)
        shuffled = np.random.default_rng(seed).permutation(len(self))
        return self.subset(np.sort(shuffled[:first_count])), self.subset(np.sort(shuffled[first_count:]))

    def split_within(self, fraction: float) -> tuple[ClientData, ClientData]:
        """Split the examples of every client in two, e.g. to hold out the last ones for validation.

        Args:
            fraction: of each client's examples that go to the head, between 0 and 1; rounded, at least one example.

        Returns:
            (head, tail). A client whose tail would be empty is in the head only.

        >>> head, tail = ClientData.from_clients([{"x": np.arange(10)}, {"x": np.arange(1)}]).split_within(0.8)
        >>> head.sizes.tolist(), tail.sizes.tolist()
        ([8, 1], [2])
        """
        _check_fraction(fraction)
        head_sizes = np.maximum(np.floor(self.sizes * fraction + 0.5).astype(np.int64), 1)
        with_tail = np.flatnonzero(self.sizes > head_sizes)
        if not len(with_tail):
            raise ValueError(f"no client has enough examples to hold out {1 - fraction:.3g} of them: use split_clients")
        tails = replace(self, starts=self.starts + head_sizes, sizes=np.maximum(self.sizes - head_sizes, 1))
        return replace(self, sizes=head_sizes), tails.subset(with_tail)

    def statistics(self) -> Statistics:
        """The number of clients and examples, and quantiles of the examples per client."""
        low, middle, high = np.quantile(self.sizes, [0.1, 0.5, 0.9])
        return Statistics(
            clients=len(self),
            examples=self.examples,
            smallest=int(self.sizes.min()),
            percentile_10=float(low),
            median=float(middle),
            mean=float(self.sizes.mean()),
            percentile_90=float(high),
            largest=int(self.sizes.max()),
        )

    @classmethod
    def from_clients(
        cls, clients: Sequence[Mapping[str, np.ndarray]], client_ids: Sequence[str] | None = None
    ) -> ClientData:
        """Join the arrays of all clients.

        Args:
            clients: for each client a mapping from column to array; the leading axis counts examples.
            client_ids: one name per client; by default "0", "1", …

        Returns:
            The data, clients in the given order.

        >>> ClientData.from_clients([{"x": np.zeros((3, 2)), "y": np.zeros(3)}]).columns["x"].shape
        (3, 2)
        """
        if not len(clients):
            raise ValueError("no clients: give at least one mapping of arrays")
        names = [str(index) for index in range(len(clients))] if client_ids is None else list(client_ids)
        if len(names) != len(clients):
            raise ValueError(f"{len(names)} client ids for {len(clients)} clients: give one per client")
        if len(set(names)) < len(names):
            raise ValueError("two clients have the same id: give every client its own")
        shown = names if client_ids is None else [repr(name) for name in names]
        checked = [_client_arrays(name, client) for name, client in zip(shown, clients)]
        for name, client in zip(shown, checked):
            _check_matches_first_client(name, client, shown[0], checked[0])
        sizes = np.array([len(next(iter(client.values()))) for client in checked], np.int64)
        return cls(
            columns={name: np.concatenate([client[name] for client in checked]) for name in checked[0]},
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            client_ids=ClientIds.from_names(names),
            named=client_ids is not None,
        )

    def regrouped(self, parts: Sequence[np.ndarray], prefix: str = "client") -> ClientData:
        """The same examples with other clients, e.g. those of a partition.

        Args:
            parts: for each new client the indices of its examples, from 0 to `self.examples - 1`, counted through the
                clients in their order: what the functions of `ft.data.partition` return.
            prefix: of the names of the clients, which are numbered.

        Returns:
            The data, its examples copied.

        >>> data = ClientData.from_clients([{"x": np.array([1.0, 2.0, 3.0, 4.0])}])
        >>> halves = data.regrouped([np.array([0, 2]), np.array([1, 3])])
        >>> halves.client(1), list(halves.names)
        ({'x': array([2., 4.])}, ['client_0', 'client_1'])
        """
        order = self._rows()[np.concatenate(parts)]
        sizes = np.array([len(part) for part in parts], np.int64)
        return replace(
            self,
            columns={name: _rows_at(column, order) for name, column in self.columns.items()},
            starts=np.cumsum(sizes) - sizes,
            sizes=sizes,
            client_ids=ClientIds.from_names(numbered_names(prefix, len(parts))),
            named=True,
        )


def numbered_names(prefix: str, count: int) -> list[str]:
    """prefix_00, prefix_01, …: as many digits as the last one needs, so that sorting keeps their order."""
    digits = len(str(count - 1))
    return [f"{prefix}_{number:0{digits}}" for number in range(count)]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _described(column: Column) -> str:
    if isinstance(column, Ragged):
        return f"{column.dtype} (ragged)"
    return f"{column.dtype} {column.shape[1:]}" if column.ndim > 1 else str(column.dtype)


def _rows_at(column: Column, rows: np.ndarray) -> Column:
    if isinstance(column, Ragged):
        return Ragged.from_rows([column[int(row)] for row in rows])
    return np.asarray(column)[rows]


def _rows_between(column: Column, start: int, stop: int) -> np.ndarray | list[np.ndarray]:
    if isinstance(column, Ragged):
        return [column[row] for row in range(start, stop)]
    return column[start:stop]


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}: choose a number above 0 and below 1")


def _client_arrays(owner: str, client: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not client:
        raise ValueError(f"client {owner} has no columns: give it at least one array")
    arrays = {name: _to_array(owner, name, values) for name, values in client.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"client {owner} has columns of unequal length {lengths}: give one row per example in each")
    if 0 in lengths.values():
        raise ValueError(f"client {owner} has no examples: leave it out")
    return arrays


def _to_array(owner: str, name: str, values: np.ndarray) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"column {name!r} of client {owner} has rows of different shapes: pad them") from None
    if array.dtype == object:
        raise ValueError(
            f"column {name!r} of client {owner} holds Python objects: give numbers or strings, all of one shape"
        )
    if array.ndim == 0:
        raise ValueError(f"column {name!r} of client {owner} is a single value: give an array with one row per example")
    return array


def _check_matches_first_client(
    owner: str, client: Mapping[str, np.ndarray], first_name: str, first: Mapping[str, np.ndarray]
) -> None:
    if client.keys() != first.keys():
        raise ValueError(
            f"client {owner} has columns {sorted(client)} but client {first_name} has {sorted(first)}: "
            "give all clients the same columns"
        )
    for name, array in client.items():
        if array.shape[1:] != first[name].shape[1:]:
            raise ValueError(
                f"column {name!r} has examples of shape {array.shape[1:]} at client {owner} "
                f"but {first[name].shape[1:]} at client {first_name}: give all clients the same shape"
            )
