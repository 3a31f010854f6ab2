"""LEAF JSON: `{"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}`."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.data.compressed import damaged, open_binary

SHOWN_USERS = 5  # in a warning


def read(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (user, {x, y}) of one file, or of every .json file in a folder, sorted by name.

    Lists of numbers become float32 arrays; text stays text. A LEAF file is one JSON object, so one file at a time is
    loaded into memory.
    """
    for file in _files(Path(path)):
        yield from _examples(file, _load(file))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.json"))
    if not files:
        raise ValueError(f"{path} contains no .json file: give the folder of LEAF's train or test files")
    return files


def _load(path: Path) -> dict[str, Any]:
    with open_binary(path) as stream:
        try:
            content = json.load(stream)
        except ValueError as error:
            raise damaged(path, f"not JSON, {error}") from error
    missing = {"users", "num_samples", "user_data"} - set(content if isinstance(content, dict) else ())
    if missing:
        raise ValueError(f"{path} has no {', '.join(sorted(missing))}: give a file in LEAF's layout")
    return content


def _examples(path: Path, content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    users, sample_counts = content["users"], content["num_samples"]
    if len(users) != len(sample_counts):
        raise damaged(path, f"{len(users)} users but {len(sample_counts)} entries in num_samples")
    if empty := [str(user) for user, sample_count in zip(users, sample_counts) if sample_count == 0]:
        shown = ", ".join([*empty[:SHOWN_USERS], *["…"][: len(empty) > SHOWN_USERS]])
        counted = "1 user without examples is" if len(empty) == 1 else f"{len(empty):,} users without examples are"
        warnings.warn(f"{path}: {counted} left out: {shown}", stacklevel=2)
    for user, sample_count in zip(users, sample_counts):
        yield from ((user, example) for example in _user_examples(path, content["user_data"], user, sample_count))


def _user_examples(path: Path, user_data: dict[str, Any], user: str, sample_count: int) -> list[dict[str, Any]]:
    if user not in user_data:
        raise damaged(path, f"user {user!r} has no entry in user_data")
    xs, ys = user_data[user].get("x", []), user_data[user].get("y", [])
    if not len(xs) == len(ys) == sample_count:
        raise damaged(path, f"user {user!r} has {len(xs)} x and {len(ys)} y, but num_samples says {sample_count}")
    return [{"x": _value(x), "y": _value(y)} for x, y in zip(xs, ys)]


def _value(value: Any) -> Any:
    """A list of numbers becomes an array; strings, single numbers, other lists are returned unchanged."""
    holds_text = isinstance(value, list) and any(isinstance(item, str) for item in value)
    if not isinstance(value, list) or holds_text:
        return value
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        return value  # of unequal lengths: the conversion names the row
