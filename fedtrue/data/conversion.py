"""From rows of a user's table to clients with standard columns.

| what the rows have | columns |
|---|---|
| numeric features, or images, with a label | `x`, `y` |
| texts | `tokens`: sentences of word ids |
| texts with tags | `words`, `tags`: ragged ids |
| texts with a label | `words`, `y` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from fedtrue.data.client_data import ClientData, ClientIds, Column, Ragged
from fedtrue.data.columns import Chunk, Fixed, Schema
from fedtrue.data.parts import Features, Images, Label, Part
from fedtrue.data.rows import Rows, scalars
from fedtrue.data.text_parts import BagsOfWords, Sentences

WORDS = 10_000  # in a vocabulary, as in the paper
ALL_ROWS = "all"  # the name of the only client of data without clients


class ColumnRoles(TypedDict, total=False):
    """Which columns of a table are what.

    label: the class of a row, or a number to predict.
    features: numeric columns; by default all that have no other role.
    ignore: columns that are not used.
    image: images as arrays, bytes of image files, or paths of image files relative to the table.
    image_shape: (height, width) or (height, width, channels). Image files are resized to it; numeric features, or the
        arrays of `image`, are reshaped to it.
    text: texts; without `label` and `tags` their sentences are for next-word prediction.
    tags: lists of tags, or texts that separate them by spaces or commas.
    words: the number of most frequent words that are known.
    classes: the names of the classes in their order, e.g. those of the train data; by default sorted.
    """

    label: str | None
    features: Sequence[str] | str | None
    ignore: Sequence[str] | str
    image: str | None
    image_shape: Sequence[int] | None
    text: str | None
    tags: str | None
    words: int
    classes: Sequence[str] | None


@dataclass(frozen=True)
class Roles:
    """The roles of columns, checked; see `ColumnRoles`."""

    client: str | None
    label: str | None = None
    features: Sequence[str] | str | None = None
    ignore: Sequence[str] | str = ()
    image: str | None = None
    image_shape: Sequence[int] | None = None
    text: str | None = None
    tags: str | None = None
    words: int = WORDS
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        inputs = [name for name in ("features", "image", "text") if getattr(self, name) is not None]
        if self.text is not None and self.image_shape is not None:
            inputs.append("image_shape")
        if len(inputs) > 1:
            raise ValueError(f"{' and '.join(inputs)} exclude each other: give one of them")
        if self.tags is not None and (self.text is None or self.label is not None):
            raise ValueError("tags are predicted from a text: give text and tags, and no label")
        if self.classes is not None and self.label is None:
            raise ValueError("classes are the names of labels: give label, too")
        if self.words < 1:
            raise ValueError(f"words is {self.words}: choose at least 1")
        shape = self.image_shape
        if shape is not None and (len(shape) not in (2, 3) or min(shape) < 1):
            raise ValueError(f"image_shape is {tuple(shape)}: give (height, width) or (height, width, channels)")

    def named_columns(self) -> list[str]:
        """All columns that have a role."""
        single = [self.client, self.label, self.image, self.text, self.tags]
        return [*filter(None, single), *as_list(self.features or ()), *as_list(self.ignore)]


class Conversion:
    """How the rows of a table become examples. `scan` must have seen all rows before `chunk` is called."""

    def __init__(self, roles: Roles, folder: Path = Path()):
        self.roles = roles
        self.label = None if roles.label is None else Label(roles.label, roles.classes)
        self.parts: list[Part] = [_input_part(roles, folder), *([self.label] if self.label else [])]

    @property
    def kind(self) -> str:
        """What the examples are: features, image, words, tags or labelled_text."""
        if self.roles.text is not None:
            return "tags" if self.roles.tags else "labelled_text" if self.roles.label else "words"
        return "image" if self.roles.image is not None or self.roles.image_shape is not None else "features"

    def scan(self, rows: Rows) -> None:
        """Learn shapes, classes and vocabularies from one chunk."""
        for name in self.roles.named_columns():
            rows.column(name)  # a wrong name is an error before anything is converted
        for part in self.parts:
            part.scan(rows)

    @property
    def schema(self) -> Schema:
        return {name: kind for part in self.parts for name, kind in part.schema().items()}

    @property
    def vocabularies(self) -> dict[str, Sequence[str]]:
        return {name: words for part in self.parts for name, words in part.vocabularies().items()}

    def chunk(self, rows: Rows, clients: Sequence[str] | None = None) -> Chunk:
        """The examples of one chunk; `clients` names the client of each row, by default as the client column does."""
        owners = self.clients(rows) if clients is None else clients
        columns: dict[str, Any] = {}
        for part in self.parts:
            converted = part.convert(rows)
            columns.update(converted.columns)
            if converted.kept is not None:
                owners = [owners[row] for row in converted.kept]
        return Chunk(owners, columns)

    def clients(self, rows: Rows) -> Sequence[str]:
        """The client of each row."""
        if self.roles.client is None:
            return [ALL_ROWS] * len(rows)
        return [str(value) for value in scalars(rows, self.roles.client)]


def _input_part(roles: Roles, folder: Path) -> Part:
    shape = None if roles.image_shape is None else tuple(roles.image_shape)
    if roles.text is not None:
        with_target = roles.tags is not None or roles.label is not None
        return BagsOfWords(roles.text, roles.words, roles.tags) if with_target else Sentences(roles.text, roles.words)
    if roles.image is not None:
        return Images(roles.image, shape, folder)
    names = (roles.client, roles.label, *as_list(roles.ignore))
    features = None if roles.features is None else as_list(roles.features)
    return Features(features, [name for name in names if name is not None], shape)


def as_list(names: Sequence[str] | str) -> list[str]:
    """A single name is a list of one."""
    return [names] if isinstance(names, str) else list(names)


def scan_splits(conversion: Conversion, splits: Mapping[str, Callable[[], Iterator[Rows]]]) -> None:
    """Scan all splits: shapes and vocabularies come from the train data, classes from all."""
    main = "train" if "train" in splits else next(iter(splits))
    for split, read in splits.items():
        for rows in read():
            if split == main:
                conversion.scan(rows)
            elif conversion.label is not None:
                conversion.label.scan(rows)
    if conversion.kind == "labelled_text" and conversion.label is not None and conversion.label.is_regression:
        raise ValueError(
            f"column {conversion.label.name!r} holds numbers with a fraction, but texts are sorted into classes: "
            "choose another label"
        )


def in_memory(conversion: Conversion, splits: Mapping[str, Callable[[], Iterator[Rows]]]) -> dict[str, ClientData]:
    """All rows of all splits as clients in memory; they are read twice."""
    scan_splits(conversion, splits)
    return {split: gathered((conversion.chunk(rows) for rows in read()), conversion) for split, read in splits.items()}


def gathered(chunks: Iterable[Chunk], conversion: Conversion) -> ClientData:
    """Join chunks to clients, sorted by name, each with its examples in the order of the source."""
    chunks = [chunk for chunk in chunks if len(chunk.clients)]
    owners = [client for chunk in chunks for client in chunk.clients]
    if not owners:
        raise ValueError("the data has no examples: check the file and the columns")
    names, codes = np.unique(np.array(owners, object).astype(str), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(names)).astype(np.int64)
    return ClientData(
        columns={name: _join(chunks, name, kind, order) for name, kind in conversion.schema.items()},
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        client_ids=ClientIds.from_names(names.tolist()),
        named=conversion.roles.client is not None,
        vocabularies=conversion.vocabularies,
    )


def _join(chunks: Sequence[Chunk], name: str, kind: Any, order: np.ndarray) -> Column:
    if isinstance(kind, Fixed):
        return np.concatenate([np.asarray(chunk.columns[name]) for chunk in chunks]).astype(kind.dtype)[order]
    rows = [row for chunk in chunks for row in chunk.columns[name]]
    return Ragged.from_rows([rows[index].astype(kind.dtype) for index in order])
