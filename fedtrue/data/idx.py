"""IDX files (MNIST, EMNIST, Fashion-MNIST) and QMNIST's extended labels, which name the writer of each digit."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.data.compressed import damaged, open_binary

ELEMENT_TYPES: dict[int, np.dtype] = {  # third byte of the magic number → big-endian element
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
QMNIST_COLUMNS = 8  # class, NIST series, writer, index among the writer's digits, NIST class, NIST index, 0, 0
CLASS_COLUMN, WRITER_COLUMN = 0, 2


def read(
    images_path: str | Path, labels_path: str | Path, writers_path: str | Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (writer, {image, label}) of MNIST, with the writers from QMNIST's label file, in MNIST's order.

    QMNIST's test file has more than MNIST's 10,000 digits; the others are skipped. The classes in both label files must
    agree, so a train file is never combined with a test file.
    """
    images, labels = read_labelled(images_path, labels_path)
    extended = read_array(writers_path)
    if extended.ndim != 2 or extended.shape[1] != QMNIST_COLUMNS:
        raise ValueError(f"{writers_path} has shape {extended.shape}, not (n, 8): give a qmnist-…-labels-idx2-int file")
    if len(extended) < len(images):
        raise ValueError(f"{writers_path} names {len(extended)} writers for {len(images)} images: use the same split")
    extended = extended[: len(images)]
    disagreeing = int(np.sum(extended[:, CLASS_COLUMN] != labels))
    if disagreeing:
        raise ValueError(f"{writers_path} and {labels_path} disagree on {disagreeing} classes: use the same split")
    for image, label, writer in zip(images, labels, extended[:, WRITER_COLUMN]):
        yield str(writer), {"image": image, "label": int(label)}


def read_labelled(images_path: str | Path, labels_path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """(images, labels) from a pair of IDX files; both have the same length."""
    images, labels = read_array(images_path), read_array(labels_path)
    if images.ndim != 3:
        raise ValueError(f"{images_path} has {images.ndim} dimensions, not 3: give an …-images-idx3-ubyte file")
    if labels.ndim != 1:
        raise ValueError(f"{labels_path} has {labels.ndim} dimensions, not 1: give a …-labels-idx1-ubyte file")
    if len(images) != len(labels):
        raise ValueError(f"{images_path} has {len(images)} images, {labels_path} {len(labels)}: use the same split")
    return images, labels


def read_array(path: str | Path) -> np.ndarray:
    """The array in one IDX file, plain or compressed, in native byte order."""
    path = Path(path)
    with open_binary(path) as stream:
        content = stream.read()
    element, shape, header_bytes = _header(path, content)
    expected_bytes = header_bytes + math.prod(shape) * element.itemsize
    if len(content) != expected_bytes:
        raise damaged(path, f"{len(content)} bytes when unpacked, but its header announces {expected_bytes}")
    array = np.frombuffer(content, element, offset=header_bytes).reshape(shape)
    return array.astype(element.newbyteorder("="), copy=False)


def _header(path: Path, content: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    """Magic `00 00 type dimensions`, then one big-endian uint32 per dimension → (element, shape, header length)."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in ELEMENT_TYPES:
        raise ValueError(f"{path} starts with '{content[:4].hex(' ')}', not an IDX magic number: give an IDX file")
    header_bytes = 4 + 4 * content[3]
    if len(content) < header_bytes:
        raise damaged(path, "the header is truncated")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return ELEMENT_TYPES[content[2]], tuple(int(extent) for extent in shape), header_bytes
