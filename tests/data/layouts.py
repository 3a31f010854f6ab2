"""Small files in the published layouts, and functions that damage them; shared by the tests of the readers."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def real_file(*parts: str) -> Path:
    """A file below FEDTRUE_DATA; the test is skipped if it does not exist."""
    root = os.environ.get("FEDTRUE_DATA")
    if not root:
        pytest.skip("FEDTRUE_DATA is not set: tests on real files are skipped")
    path = Path(root).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


def write(path: Path, content: bytes) -> Path:
    """Write a file, compressed according to its suffix."""
    path.write_bytes(COMPRESSIONS.get(path.suffix, bytes)(content))
    return path


def truncate(path: Path, kept: float = 0.6) -> Path:
    """Truncate the file, as an interrupted copy does."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    return path


def overwrite(path: Path, at: float = 0.5, junk: bytes = b"\xff\x00\xff\x00\xff\x00") -> Path:
    """Replace some bytes in the middle of the file."""
    content = bytearray(path.read_bytes())
    start = int(len(content) * at)
    content[start : start + len(junk)] = junk
    path.write_bytes(bytes(content))
    return path


def idx(array: np.ndarray) -> bytes:
    """`00 00 type dimensions`, extents and elements, all big-endian."""
    type_codes = {"uint8": 0x08, "int32": 0x0C}
    header = bytes([0, 0, type_codes[str(array.dtype)], array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def cifar_records(labels: np.ndarray, images: np.ndarray) -> bytes:
    """Label bytes (n, k), then planes RRR GGG BBB of images (n, 32, 32, 3)."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels.astype(np.uint8), planes], axis=1).tobytes()


def tar(members: Mapping[str, bytes]) -> bytes:
    """An uncompressed tar archive of the members, in their order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
