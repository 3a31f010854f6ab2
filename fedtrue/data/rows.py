"""Rows of a user's table, in chunks: what every reader yields and every conversion reads.

A column of a chunk is a list or an array with one entry per row. Values are as the source has them: numbers, strings
(all values of a CSV file are strings), lists, arrays, or the bytes of an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtrue.names import suggestion

CHUNK_VALUES = 1 << 18  # values per chunk, about 20 MB as Python objects
MAX_CHUNK_ROWS = 8192
NO_REAL_NUMBERS = frozenset("Mmc")  # NumPy's kinds of dates, durations and complex numbers


def rows_per_chunk(values_per_row: int) -> int:
    """How many rows a reader puts into one chunk."""
    return max(1, min(MAX_CHUNK_ROWS, CHUNK_VALUES // max(values_per_row, 1)))


@dataclass(frozen=True)
class Rows:
    """A chunk of consecutive rows."""

    columns: Mapping[str, Any]  # name → list or array
    where: str  # the file, for errors
    first: int = 1  # the number of the first row

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, name: str) -> Any:
        """The values of a column; a wrong name raises a ValueError with the nearest one."""
        if name in self.columns:
            return self.columns[name]
        valid = ", ".join(list(self.columns)[:20])
        raise ValueError(f"{self.where} has no column {name!r}{suggestion(name, self.columns)}; it has: {valid}")

    def subset(self, indices: np.ndarray) -> Rows:
        """The rows at these indices; errors about them do not name the row's number any more."""
        return Rows({name: take(values, indices) for name, values in self.columns.items()}, self.where, self.first)

    def error(self, index: int, name: str, problem: str) -> ValueError:
        """The error for one value: it names the file, the row and the column."""
        return ValueError(f"{self.where}, row {self.first + index}: column {name!r} {problem}")


def take(values: Any, indices: np.ndarray) -> Any:
    """The entries of a list or an array at these indices."""
    return values[indices] if isinstance(values, np.ndarray) else [values[index] for index in indices]


def is_numeric(values: Any) -> bool:
    """Whether all values that are not missing are numbers, texts of numbers, or arrays of numbers.

    >>> is_numeric(["1", "2.5", ""]), is_numeric(["1", "x"]), is_numeric([[1, 2], [3, 4]])
    (True, False, True)
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufMmc":
        return values.dtype.kind not in NO_REAL_NUMBERS
    present = [value for value in values if not is_missing(value)]
    try:
        return bool(present) and as_float64(present).size > 0
    except (TypeError, ValueError):
        return False


def is_mostly_numeric(values: Any) -> bool:
    """Whether at least half of the values that are not missing are numbers: the others are then mistakes.

    >>> is_mostly_numeric(["1", "2.5", "N/A"]), is_mostly_numeric(["Rome", "Oslo", "7"])
    (True, False)
    """
    present = [value for value in values if not is_missing(value)]
    return bool(present) and 2 * sum(is_numeric([value]) for value in present) >= len(present)


def as_float64(values: Any) -> np.ndarray:
    """An array of these numbers, or texts of numbers; a TypeError or ValueError if they are something else.

    NumPy alone would count a date in nanoseconds and drop the imaginary part of a complex number.
    """
    kinds = {_kind(values)}
    if isinstance(values, list) or kinds == {"O"}:
        kinds.update(map(_kind, values))
    if kinds & NO_REAL_NUMBERS:
        raise TypeError("dates, durations and complex numbers are no real numbers")
    return np.asarray(values, np.float64)


def _kind(value: Any) -> str:
    """NumPy's letter for the kind of an array or a scalar; '' for other values, also tensors of PyTorch."""
    return getattr(getattr(value, "dtype", None), "kind", "")


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN (of any library) or an empty text."""
    if value is None or (isinstance(value, str | bytes) and not value.strip()):
        return True
    return bool(np.isscalar(value) and value != value) or type(value).__name__ == "NAType"


def numbers(rows: Rows, name: str) -> np.ndarray:
    """A column as float32 (rows, …); a text, or a number that is missing or not finite, is an error with its row."""
    values = rows.column(name)
    try:
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which is refused below
            array = as_float64(values).astype(np.float32)
    except (TypeError, ValueError):
        raise why_not_numbers(rows, name) from None
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])
        problem = "is missing or NaN" if np.isnan(array[bad]).any() else "is infinite, or too large for float32"
        raise rows.error(bad, name, f"{problem}: correct it or leave the row out")
    return array


def why_not_numbers(rows: Rows, name: str) -> ValueError:
    """The error for the first value of a column that is no number, or whose shape differs."""
    shapes = []
    for index, value in enumerate(rows.column(name)):
        if is_missing(value):
            return rows.error(index, name, "is missing: fill it in or leave the row out")
        try:
            shapes.append(as_float64(value).shape)
        except (TypeError, ValueError):
            shown = value if isinstance(value, str) else type(value).__name__
            cure = f"correct it, or leave the column out with ignore=[{name!r}] (--ignore {name})"
            return rows.error(index, name, f"is {str(shown)[:40]!r}, not a number: {cure}")
        if shapes[-1] != shapes[0]:
            return rows.error(index, name, f"has the shape {shapes[-1]}, the rows before it {shapes[0]}: pad them")
    return rows.error(0, name, "does not hold numbers: ignore the column")


def texts(rows: Rows, name: str) -> list[str]:
    """A column of texts; bytes are decoded, and anything else raises a ValueError with its row."""
    found = []
    for index, value in enumerate(rows.column(name)):
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        if not isinstance(value, str):
            problem = "is missing" if is_missing(value) else f"is {str(value)[:40]!r}, not a text"
            raise rows.error(index, name, f"{problem}: correct the row or choose another column")
        found.append(value)
    return found


def scalars(rows: Rows, name: str) -> list[Any]:
    """A column of labels or client names as Python's own strings and numbers; a missing value raises a ValueError."""
    values = rows.column(name)
    if isinstance(values, np.ndarray) and values.dtype.kind in "Mm":
        values = values.astype(f"{values.dtype.kind}8[us]")  # Python's dates have microseconds; NaT becomes None
    if isinstance(values, np.ndarray):
        values = (values.reshape(len(values)) if values.size == len(values) else values).tolist()
    found = []
    for index, value in enumerate(values):
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size == 1):
            value = value.item()
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        if is_missing(value):
            raise rows.error(index, name, "is missing: fill it in or leave the row out")
        if isinstance(value, complex | Sequence | np.ndarray | Mapping) and not isinstance(value, str):
            raise rows.error(index, name, f"is a {type(value).__name__}, not a text or a number: choose another column")
        found.append(int(value) if isinstance(value, bool) else value)
    return found
