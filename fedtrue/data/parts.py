"""Columns `x` and `y` from the columns of a user's table: features, images, labels.

A part sees every chunk twice: `scan` learns what the column needs (shape, classes), `convert` gives its values.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedtrue.data.columns import Fixed, Schema
from fedtrue.data.rows import Rows, is_missing, is_mostly_numeric, is_numeric, numbers, scalars, why_not_numbers

MAX_CLASSES = 10_000  # more different labels are numbers to predict (regression), or a mistake
SHOWN_CLASSES = 8  # in errors


class Converted(NamedTuple):
    """The values of a part's columns, by name."""

    columns: dict[str, Any]
    kept: np.ndarray | None = None  # the row that each example came from; None: one example per row


class Part(Protocol):
    """One or two columns of the result."""

    def scan(self, rows: Rows) -> None: ...

    def schema(self) -> Schema: ...

    def vocabularies(self) -> Mapping[str, Sequence[str]]: ...

    def convert(self, rows: Rows) -> Converted: ...


class Features:
    """Column `x` from numeric columns: side by side if they are single numbers, as it is if it is one array per row.

    `names` are the columns; None means all numeric ones but `others`. With `shape` the numbers are pixels of images.
    """

    def __init__(self, names: Sequence[str] | None, others: Sequence[str], shape: tuple[int, ...] | None):
        self.names, self._others, self._wanted_shape = names, others, shape
        self.shape: tuple[int, ...] | None = None
        self._are_pixels, self._largest = True, 0.0  # whole numbers from 0 to 255

    def scan(self, rows: Rows) -> None:
        if self.shape is not None and self._wanted_shape is None:
            return  # the first chunk has told all; wrong values further down are found by `convert`
        self.names = self._numeric_columns(rows) if self.names is None else self.names
        values = self._numbers(rows)
        self.shape = values.shape[1:] if self.shape is None else self.shape
        if self._are_pixels:
            self._largest = max(self._largest, float(values.max(initial=0)))
            self._are_pixels = bool((values == np.clip(np.round(values), 0, 255)).all())

    def _numeric_columns(self, rows: Rows) -> list[str]:
        candidates = [name for name in rows.columns if name not in self._others]
        numeric = [name for name in candidates if is_numeric(rows.column(name))]
        other = [name for name in candidates if name not in numeric]
        with_mistakes = [name for name in other if is_mostly_numeric(rows.column(name))]
        if other := [name for name in other if name not in with_mistakes]:
            raise ValueError(
                f"{rows.where}: column {', '.join(other)} holds no numbers: leave it out with ignore={other!r} "
                f"(--ignore {','.join(other)}), or use it as label=, text= or image="
            )
        if with_mistakes:
            raise why_not_numbers(rows, with_mistakes[0])
        if not numeric:
            raise ValueError(f"{rows.where} has no column of numbers besides {', '.join(self._others)}: add features")
        return numeric

    def _numbers(self, rows: Rows) -> np.ndarray:
        assert self.names is not None
        arrays = [numbers(rows, name) for name in self.names]
        joined = arrays[0] if len(arrays) == 1 and arrays[0].ndim > 1 else _side_by_side(arrays)
        if self.shape is not None and len(joined) and int(np.prod(joined.shape[1:])) != int(np.prod(self.shape)):
            raise rows.error(0, self.names[0], f"has the shape {joined.shape[1:]}, not {self.shape}: pad the rows")
        if self._wanted_shape is None:
            return joined
        return joined.reshape(len(joined), *image_shape(joined[0].size, self._wanted_shape, rows.where))

    def schema(self) -> Schema:
        assert self.shape is not None
        are_pixels = self._wanted_shape is not None and self._are_pixels and self._largest > 1
        return {"x": Fixed(self.shape, np.uint8 if are_pixels else np.float32)}

    def vocabularies(self) -> Mapping[str, Sequence[str]]:
        return {}

    def convert(self, rows: Rows) -> Converted:
        return Converted({"x": self._numbers(rows)})


class Images(Features):
    """Column `x` from one column of images: arrays of numbers, bytes of image files, or paths of image files.

    Images of files are resized to `shape` if it is given; arrays are reshaped.
    """

    def __init__(self, name: str, shape: tuple[int, ...] | None, folder: Path):
        super().__init__([name], (), shape)
        self._name, self._folder = name, folder
        self._encoded = False

    def scan(self, rows: Rows) -> None:
        if self.shape is not None and self._encoded:
            return  # files have whole pixels; decoding them twice would double the time
        first = rows.column(self._name)[0]
        self._encoded = isinstance(first, str | bytes | Path | Mapping) or hasattr(first, "convert")
        if self._encoded:
            self.shape = self._decode(rows, 0).shape
        else:
            self._wanted_shape = self._wanted_shape or _shape_of_pixels(numbers(rows, self._name))
            super().scan(rows)

    def schema(self) -> Schema:
        return {"x": Fixed(self.shape or (), np.uint8)} if self._encoded else super().schema()

    def convert(self, rows: Rows) -> Converted:
        if not self._encoded:
            return super().convert(rows)
        return Converted({"x": np.stack([self._decode(rows, index) for index in range(len(rows))])})

    def _decode(self, rows: Rows, index: int) -> np.ndarray:
        from PIL import Image, UnidentifiedImageError

        value = rows.column(self._name)[index]
        if isinstance(value, Mapping):  # how Hugging Face stores images
            value = value.get("bytes") or value.get("path")
        if is_missing(value):
            raise rows.error(index, self._name, "is missing: leave the row out")
        try:
            if hasattr(value, "convert"):
                return self._pixels(value, rows, index)
            source = io.BytesIO(value) if isinstance(value, bytes) else self._folder / value
            with Image.open(source) as image:
                return self._pixels(image, rows, index)
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            reason = "not a known image format" if isinstance(error, UnidentifiedImageError) else str(error)
            raise rows.error(index, self._name, f"cannot be read as an image ({reason})") from None

    def _pixels(self, image: Any, rows: Rows, index: int) -> np.ndarray:
        wanted = self._wanted_shape
        image = image.convert("L" if wanted is not None and wanted[2:] == (1,) else "RGB")
        if wanted is not None:
            image = image.resize((wanted[1], wanted[0]))
        pixels = np.asarray(image)
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if self.shape is not None and pixels.shape != self.shape:
            cure = "give image_shape (--image-shape H,W) to resize all images"
            raise rows.error(index, self._name, f"has the size {pixels.shape}, the first image {self.shape}: {cure}")
        return pixels


def image_shape(size: int, wanted: tuple[int, ...], where: str) -> tuple[int, ...]:
    """(height, width, channels) for `size` numbers; the channels may be left out of `wanted`."""
    pixels = int(np.prod(wanted[:2]))
    shape = wanted if len(wanted) == 3 else (*wanted, size // max(pixels, 1))
    if len(shape) != 3 or int(np.prod(shape)) != size or 0 in shape:
        raise ValueError(f"{where}: {size} numbers per row are no images of shape {wanted}: correct image_shape")
    return shape


def _shape_of_pixels(values: np.ndarray) -> tuple[int, ...]:
    """The shape of images that come as numbers: as it is, or a square of 1 or 3 channels."""
    if values.ndim in (3, 4):
        return values.shape[1:]
    size = values[0].size
    for channels in (1, 3):
        side = round((size / channels) ** 0.5)
        if side * side * channels == size:
            return side, side, channels
    raise ValueError(f"images of {size} numbers are not square: give image_shape (--image-shape H,W,CHANNELS)")


def _side_by_side(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)


class Label:
    """Column `y`: classes as 0, 1, …, or numbers to predict.

    Whole numbers from 0 on stay as they are. Strings, and other whole numbers, are numbered in sorted order. Numbers
    with a fraction, or more than MAX_CLASSES different ones, are targets of a regression.
    """

    def __init__(self, name: str, classes: Sequence[str] | None = None):
        self.name, self._given = name, classes
        self._seen: dict[Any, None] = {}

    def scan(self, rows: Rows) -> None:
        if len(self._seen) <= MAX_CLASSES:
            self._seen.update(dict.fromkeys(scalars(rows, self.name)))
            if len(self._seen) > MAX_CLASSES and not is_numeric(list(self._seen)):
                raise ValueError(
                    f"{rows.where}: column {self.name!r} has more than {MAX_CLASSES:,} different texts: "
                    "is it the column of the labels?"
                )

    @cached_property
    def is_regression(self) -> bool:
        if self._given is not None or not is_numeric(list(self._seen)):
            return False
        return len(self._seen) > MAX_CLASSES or not all(map(_is_whole, self._seen))

    def class_names(self) -> Sequence[str] | None:
        """The name of each class; None if the labels were whole numbers from 0 on, or are no classes."""
        if self._given is not None:
            return list(self._given)
        if self.is_regression or self._are_plain():
            return None
        whole = all(map(_is_whole, self._seen))
        return [str(value) for value in sorted(self._seen, key=int if whole else str)]

    def class_count(self) -> int | None:
        """The number of classes; None for a regression."""
        if self.is_regression:
            return None
        names = self.class_names()
        return len(names) if names is not None else 1 + max(map(int, self._seen))

    def _are_plain(self) -> bool:
        return all(map(_is_whole, self._seen)) and all(0 <= int(value) < MAX_CLASSES for value in self._seen)

    def codes(self, rows: Rows) -> np.ndarray:
        """The labels of these rows as they will be stored."""
        values = scalars(rows, self.name)
        if self.is_regression:
            return numbers(rows, self.name)
        try:
            return np.array([self._codes[value] for value in values], np.int32)
        except KeyError:
            index = next(index for index, value in enumerate(values) if value not in self._codes)
            names = ", ".join([*(self._given or ())[:SHOWN_CLASSES], *["…"][: len(self._given or ()) > SHOWN_CLASSES]])
            raise rows.error(index, self.name, f"is {values[index]!r}, which is none of the classes {names}") from None

    @cached_property
    def _codes(self) -> dict[Any, int]:
        names = self.class_names()
        if names is None:
            return {value: int(value) for value in self._seen}
        codes: dict[Any, int] = {name: code for code, name in enumerate(names)}
        for value in self._seen:
            if str(value) in codes:
                codes[value] = codes[str(value)]
            elif self._given is not None and _is_whole(value) and 0 <= int(value) < len(names):
                codes[value] = int(value)  # numbers of classes whose names are known
        return codes

    def schema(self) -> Schema:
        return {"y": Fixed((), np.float32 if self.is_regression else np.int32)}

    def vocabularies(self) -> Mapping[str, Sequence[str]]:
        names = self.class_names()
        return {} if names is None else {"y": names}

    def convert(self, rows: Rows) -> Converted:
        return Converted({"y": self.codes(rows)})


def _is_whole(value: Any) -> bool:
    """Whether a label is a whole number, or the text of one: 3 and "3", not 3.0 or "3.0"."""
    if isinstance(value, str):
        return value.strip().removeprefix("-").isdigit()
    return isinstance(value, int)
