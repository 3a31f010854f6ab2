"""Open a plain or compressed data file, with one kind of error if it is damaged."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

SEVEN_ZIP_MAGIC = b"7z\xbc\xaf\x27\x1c"

_OPENERS: dict[bytes, Callable[..., Any]] = {b"\xfd7zXZ\x00": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


def starts_with(path: Path, magic: bytes) -> bool:
    """Whether the file's first bytes are `magic`. The content decides, not the file's name."""
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


@contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a plain, .gz, .bz2 or .xz file; damage found while reading raises a ValueError."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file: check the path")
    opener = next((open_ for magic, open_ in _OPENERS.items() if starts_with(path, magic)), open)
    try:
        with opener(path, "rb") as stream:
            yield stream
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, str(error)) from error
    except OSError as error:
        if error.errno is not None:  # from the operating system; bz2 reports bad data as an OSError without errno
            raise
        raise damaged(path, str(error)) from error


def damaged(path: Path | str, reason: str) -> ValueError:
    """The error for a truncated or corrupted file."""
    return ValueError(f"{path} is damaged ({reason}): download it again; nothing was changed")
