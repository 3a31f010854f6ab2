"""One split of a TFF data set, from either of its two published formats."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedtrue.data import tff_hdf5, tff_sqlite
from fedtrue.data.locations import find

Example = tuple[str, dict[str, Any]]  # (client id, {feature: value})


class Split(NamedTuple):
    """The file of the split, and `read(features)`, which yields its examples."""

    path: Path
    read: Callable[[Sequence[str]], Iterator[Example]]


def file_names(data_set: str, hdf5_name: str) -> tuple[str, ...]:
    """The files that may contain a split, in order: its HDF5 file, the SQLite file of all splits, plain or packed."""
    return hdf5_name, f"{data_set}.sqlite", f"{data_set}.sqlite.lzma"


def find_split(data_set: str, split: str, hdf5_name: str) -> Split:
    """The file of a split and its reader; raises MissingData if no file exists."""
    path = find(data_set, *file_names(data_set, hdf5_name))
    if path.name == hdf5_name:
        return Split(path, partial(tff_hdf5.read, path))
    return Split(path, partial(tff_sqlite.read, path, split))


def first_examples(examples: Iterable[Example], examples_per_client: int | None) -> Iterator[Example]:
    """At most the first `examples_per_client` examples of each client; None means all."""
    seen: Counter[str] = Counter()
    for client, example in examples:
        seen[client] += 1
        if examples_per_client is None or seen[client] <= examples_per_client:
            yield client, example
