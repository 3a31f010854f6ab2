"""Streams the rows of a source into the folder of a data set: a first pass learns, a second one writes.

Memory is bounded for any number of rows; a partition by labels keeps one integer per row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.data import columns
from fedtrue.data.client_data import numbered_names
from fedtrue.data.columns import Chunk, ColumnsWriter
from fedtrue.data.conversion import Conversion, Roles, scan_splits
from fedtrue.data.partition import data_arguments, partition_by_name
from fedtrue.data.rows import Rows, scalars
from fedtrue.data.sources import Read

VOCABULARIES = "vocabularies.json"

Progress = Callable[[str, int], None]  # ("reading" or "writing", rows so far)


@dataclass(frozen=True)
class Partition:
    """A partition of rows that have no clients; see `partition.PARTITIONS`."""

    name: str
    clients: int
    options: Mapping[str, Any] = field(default_factory=dict)  # e.g. {"alpha": 0.1}
    coarse: str | None = None  # the column of coarse labels, for pachinko


@dataclass(frozen=True)
class ImportPlan:
    """What becomes of the rows of a source."""

    roles: Roles
    file_format: str
    partition: Partition | None = None
    test_fraction: float = 0.0  # of every client's examples, drawn at random
    seed: int = 0  # of the partition and of the test examples

    def check(self, has_test: bool) -> None:
        """Raises a ValueError for choices that do not go together."""
        if self.roles.client is None and self.partition is None:
            raise ValueError("the data has no clients: give --client COLUMN, or --partition NAME --clients INT")
        if self.roles.client is not None and self.partition is not None:
            raise ValueError(
                f"the clients are in column {self.roles.client!r}: leave out --partition, or --client to partition"
            )
        if self.roles.label is None and self.roles.text is None:
            raise ValueError("nothing to learn: give --label COLUMN, or --text COLUMN")
        if not 0 <= self.test_fraction < 1:
            raise ValueError(f"the test fraction is {self.test_fraction}: choose at least 0 and below 1")
        if has_test and self.test_fraction:
            raise ValueError("there is test data already: leave out --test-fraction")


def convert(
    folder: Path, image_folder: Path, splits: Mapping[str, Read], plan: ImportPlan, progress: Progress
) -> dict[str, Any]:
    """Write all splits into `folder`; return what its meta.json says about them."""
    conversion = Conversion(plan.roles, image_folder)
    owners = _scan(conversion, splits, plan, progress)
    moments = {column: Moments(column) for column in _standardised_columns(conversion)}
    counts: dict[str, dict[str, int]] = {}
    for split, read in splits.items():
        chunks = _chunks(conversion, read, plan, split, owners)
        if split == "train":
            drawn = Holdout(plan.test_fraction, plan.seed)
            counts.update(_write(folder, conversion, drawn.splits(chunks, moments), progress))
        else:
            counts.update(_write(folder, conversion, ((split, chunk) for chunk in chunks), progress))
    (folder / VOCABULARIES).write_text(json.dumps(conversion.vocabularies))
    return {
        "kind": conversion.kind,
        "columns": columns.describe(conversion.schema),
        "classes": None if conversion.label is None else conversion.label.class_count(),
        "splits": counts,
        "moments": {column: found.as_lists() for column, found in moments.items()},
    }


def _standardised_columns(conversion: Conversion) -> list[str]:
    """The columns whose mean and deviation a model needs: features, and numbers to predict."""
    predicts_numbers = conversion.label is not None and conversion.label.is_regression
    return [*(["x"] if conversion.kind == "features" else []), *(["y"] if predicts_numbers else [])]


def _scan(
    conversion: Conversion, splits: Mapping[str, Read], plan: ImportPlan, progress: Progress
) -> np.ndarray | None:
    """Learn what the columns need. With a partition, return the client of each train row, −1 for none."""
    if "train" not in splits:
        raise ValueError(f"there is no split to train on, only {', '.join(splits)}: give the files of one split")
    rows_seen, needed = 0, _needed_columns(plan)
    codes = {argument: Codes(column) for argument, column in needed.items()}

    def train_rows() -> Iterator[Rows]:
        nonlocal rows_seen
        for rows in splits["train"]():
            rows_seen += len(rows)
            progress("reading", rows_seen)
            for column in codes.values():
                column.add(rows)
            yield rows

    scan_splits(conversion, {**splits, "train": train_rows})
    if not rows_seen:
        raise ValueError("the data has no rows: check the file")
    if plan.partition is None:
        return None
    if needed and conversion.label is not None and conversion.label.is_regression:
        raise ValueError(f"{plan.partition.name} partitions by classes, but the labels are numbers: choose iid")
    data = {"examples": rows_seen, **{argument: column.values() for argument, column in codes.items()}}
    chosen = plan.partition
    parts = partition_by_name(chosen.name, chosen.clients, plan.seed, data, chosen.options)
    owners = np.full(rows_seen, -1, np.int64)
    for client, part in enumerate(parts):
        owners[part] = client
    return owners


def _needed_columns(plan: ImportPlan) -> dict[str, str]:
    """Argument of the partition → the column it is about."""
    if plan.partition is None:
        return {}
    columns = {"labels": plan.roles.label, "fine": plan.roles.label, "coarse": plan.partition.coarse}
    needed = {argument: columns[argument] for argument in data_arguments(plan.partition.name) if argument in columns}
    for argument, column in needed.items():
        if column is None:
            flag = "--coarse" if argument == "coarse" else "--label"
            raise ValueError(f"partition {plan.partition.name!r} needs {argument}: give {flag} COLUMN")
    return {argument: column for argument, column in needed.items() if column is not None}


class Codes:
    """A number for each different value of a column, row by row."""

    def __init__(self, name: str):
        self._name = name
        self._seen: dict[Any, int] = {}
        self._chunks: list[np.ndarray] = []

    def add(self, rows: Rows) -> None:
        codes = [self._seen.setdefault(value, len(self._seen)) for value in scalars(rows, self._name)]
        self._chunks.append(np.array(codes, np.int32))

    def values(self) -> np.ndarray:
        return np.concatenate(self._chunks)


def _chunks(
    conversion: Conversion, read: Read, plan: ImportPlan, split: str, owners: np.ndarray | None
) -> Iterator[Chunk]:
    """The examples of a split: of the clients in the client column, or of a partition (other splits: of one client)."""
    if plan.partition is None:
        yield from (conversion.chunk(rows) for rows in read())
    elif split != "train" or owners is None:
        yield from (conversion.chunk(rows, [split] * len(rows)) for rows in read())
    else:
        names, position = numbered_names("client", plan.partition.clients), 0
        for rows in read():
            here = owners[position : position + len(rows)]
            position += len(rows)
            kept = np.flatnonzero(here >= 0)
            yield conversion.chunk(rows.subset(kept), [names[client] for client in here[kept]])


def _write(
    folder: Path, conversion: Conversion, chunks: Iterable[tuple[str, Chunk]], progress: Progress
) -> dict[str, dict[str, int]]:
    """Write (split, chunk) pairs; return the counts of each split."""
    writers: dict[str, ColumnsWriter] = {}
    with ExitStack() as stack:
        for split, chunk in chunks:
            if not len(chunk.clients):
                continue
            if split not in writers:
                (folder / split).mkdir()
                writers[split] = stack.enter_context(ColumnsWriter(folder / split, conversion.schema))
            writers[split].append(chunk)
            progress("writing", sum(writer.examples for writer in writers.values()))
    if not writers:
        raise ValueError("the data has no examples: check the file and the columns")
    return {split: writer.finish() for split, writer in writers.items()}


class Holdout:
    """Draws the test examples of every client; the first example of a client is always for training."""

    def __init__(self, fraction: float, seed: int):
        self._fraction, self._generator = fraction, np.random.default_rng([seed, 1])
        self._known: set[str] = set()

    def splits(self, chunks: Iterable[Chunk], moments: Mapping[str, Moments]) -> Iterator[tuple[str, Chunk]]:
        """(split, chunk) pairs; `moments` are those of the train examples."""
        for chunk in chunks:
            is_test = self._draw(chunk.clients)
            train = chunk.subset(np.flatnonzero(~is_test))
            for found in moments.values():
                found.add(train)
            yield "train", train
            yield "test", chunk.subset(np.flatnonzero(is_test))

    def _draw(self, clients: Sequence[str]) -> np.ndarray:
        is_test = self._generator.random(len(clients)) < self._fraction
        for index, client in enumerate(clients):
            if client not in self._known:
                self._known.add(client)
                is_test[index] = False
        return is_test


class Moments:
    """Mean and standard deviation of every number in a column, chunk by chunk."""

    def __init__(self, column: str):
        self._column, self._count, self._mean, self._squares = column, 0, np.zeros(()), np.zeros(())

    def add(self, chunk: Chunk) -> None:
        if not len(chunk.clients):
            return
        x = np.asarray(chunk.columns[self._column], np.float64)
        count, mean = self._count + len(x), x.mean(axis=0)
        shift = mean - self._mean
        self._squares = self._squares + ((x - mean) ** 2).sum(axis=0) + shift**2 * self._count * len(x) / count
        self._mean = self._mean + shift * len(x) / count
        self._count = count

    def as_lists(self) -> dict[str, Any]:
        """A constant column has the deviation 1, so that it is not divided by 0."""
        deviation = np.sqrt(self._squares / max(self._count, 1))
        return {"mean": self._mean.tolist(), "deviation": np.where(deviation > 0, deviation, 1.0).tolist()}
