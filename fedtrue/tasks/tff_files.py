"""One split of a TFF data set, whichever of its two published formats is there."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedtrue.data import tff_hdf5, tff_sqlite
from fedtrue.data.locations import find

Example = tuple[str, dict[str, Any]]  # (client id, {feature: value})


class Split(NamedTuple):
    """The file that holds the split, and `read(features)`, its examples."""

    path: Path
    read: Callable[[Sequence[str]], Iterator[Example]]


def file_names(data_set: str, hdf5_name: str) -> tuple[str, ...]:
    """Where a split may be, the preferred first: its HDF5 file, or all splits in one SQLite file, plain or packed."""
    return hdf5_name, f"{data_set}.sqlite", f"{data_set}.sqlite.lzma"


def find_split(data_set: str, split: str, hdf5_name: str) -> Split:
    """MissingData when no file holds the split."""
    path = find(data_set, *file_names(data_set, hdf5_name))
    if path.name == hdf5_name:
        return Split(path, partial(tff_hdf5.read, path))
    return Split(path, partial(tff_sqlite.read, path, split))


def first_of_each(examples: Iterable[Example], examples_per_client: int | None) -> Iterator[Example]:
    """At most the first `examples_per_client` examples of each client; None: all."""
    seen: Counter[str] = Counter()
    for client, example in examples:
        seen[client] += 1
        if examples_per_client is None or seen[client] <= examples_per_client:
            yield client, example
