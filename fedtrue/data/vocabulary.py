"""Stack Overflow's vocabularies as published: `stackoverflow.word_count` and `.tag_count`, or their .tar.bz2."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ARCHIVE_SUFFIX = ".tar.bz2"


def word_counts(path: Path, size: int) -> dict[str, int]:
    """The `size` most frequent words with their counts, most frequent first; the rest of the file is not read."""
    _check_size(size)
    counts: dict[str, int] = {}
    with _open_vocabulary(Path(path)) as file:
        for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8"), start=1):
            if len(counts) == size:
                break
            word, count = _word_and_count(path, number, line)
            counts[word] = count
    return _most_frequent(path, counts, size, "words")


def tag_counts(path: Path, size: int) -> dict[str, int]:
    """The `size` most frequent tags with their counts, most frequent first; ties keep the order of the file."""
    _check_size(size)
    with _open_vocabulary(Path(path)) as file:
        try:
            counts = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}): download it again") from None
    if not isinstance(counts, dict) or not all(isinstance(count, int) for count in counts.values()):
        raise ValueError(f"{path} is not a JSON object of tag: count: give TFF's stackoverflow.tag_count")
    return _most_frequent(path, dict(sorted(counts.items(), key=lambda item: -item[1])), size, "tags")


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"the vocabulary size is {size}: choose at least 1")


def _most_frequent(path: Path, counts: dict[str, int], size: int, kind: str) -> dict[str, int]:
    if size > len(counts):
        raise ValueError(f"{path} has only {len(counts)} {kind}, not {size}: choose at most {len(counts)}")
    return {word: counts[word] for word, _ in zip(counts, range(size))}


def _word_and_count(path: Path, number: int, line: str) -> tuple[str, int]:
    try:
        word, count = line.split()
        return word, int(count)
    except ValueError:
        raise ValueError(
            f"{path}: line {number} is {line.strip()[:40]!r}, not 'word count': download it again"
        ) from None


@contextmanager
def _open_vocabulary(path: Path) -> Iterator[IO[bytes]]:
    """The vocabulary file, or the file of that name in the archive."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the path or FEDTRUE_DATA")
    try:
        if not path.name.endswith(ARCHIVE_SUFFIX):
            with path.open("rb") as file:
                yield file
            return
        with tarfile.open(path, "r:bz2") as archive:
            yield _open_member(archive, path.name.removesuffix(ARCHIVE_SUFFIX))
    except (EOFError, OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or incomplete ({error}): download it again") from None


def _open_member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    for member in archive:
        if Path(member.name).name == name and (file := archive.extractfile(member)):
            return file
    raise tarfile.ReadError(f"it contains no {name}")
