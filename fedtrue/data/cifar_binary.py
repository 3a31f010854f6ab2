"""CIFAR-10 and CIFAR-100 in their binary versions (not the pickled ones: unpickling can run code).

A record is the label bytes, then 3,072 bytes of image: red, green and blue planes of 32 × 32 pixels. The data sets are
not federated: partition the arrays with `fedtrue.data.partition`.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from fedtrue.data.compressed import damaged, open_binary
from fedtrue.names import look_up

SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Layout:
    """The record layout and the files of one data set."""

    labels: dict[str, int]  # the label bytes before each image, in order: name → number of classes
    files: dict[str, tuple[str, ...]]  # split → file names


LAYOUTS = {
    "cifar10": Layout(
        labels={"label": 10},
        files={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    ),
    "cifar100": Layout(
        labels={"coarse_label": 20, "label": 100}, files={"train": ("train.bin",), "test": ("test.bin",)}
    ),
}


def read(path: str | Path, layout: str, split: str = "train") -> dict[str, np.ndarray]:
    """`image` (n, 32, 32, 3) uint8 and the layout's labels (n,) int32.

    `path` is the published tar.gz, the folder it unpacks to, or a single .bin file (then `split` is ignored).
    """
    chosen = look_up("CIFAR layout", LAYOUTS, layout)
    names = look_up("split", chosen.files, split)
    batches = [_decode(location, content, chosen) for location, content in _file_contents(Path(path), names)]
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


def _file_contents(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """(location for error messages, bytes) of each file, in the order of `names`."""
    if path.suffix == ".bin":
        yield str(path), _read_all(path)
    elif path.is_dir():
        for name in names:
            yield str(path / name), _read_all(path / name)
    else:
        yield from _tar_contents(path, names)


def _read_all(path: Path) -> bytes:
    with open_binary(path) as stream:
        return stream.read()


def _tar_contents(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with open_binary(path) as stream:
        try:
            found = _tar_members(stream, names)
        except tarfile.TarError as error:
            raise damaged(path, f"not a readable tar archive: {error}") from error
    for name in names:
        if name not in found:
            raise ValueError(f"{path} contains no {name}: use the complete tar.gz of the binary version")
        yield f"{path}, {name}", found[name]


def _tar_members(stream: IO[bytes], names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if Path(member.name).name in names else None
            if content is not None:
                found[Path(member.name).name] = content.read()
    while stream.read(1 << 20):  # read to the end, where the compressed file has its checksum
        pass
    return found


def _decode(location: str, content: bytes, layout: Layout) -> dict[str, np.ndarray]:
    record_bytes = len(layout.labels) + IMAGE_BYTES
    if not content or len(content) % record_bytes:
        raise damaged(location, f"{len(content)} bytes is not a multiple of the record size, {record_bytes}")
    records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
    planes = records[:, len(layout.labels) :].reshape(-1, 3, SIDE, SIDE)
    labels = {name: _labels(location, name, records[:, i], layout.labels[name]) for i, name in enumerate(layout.labels)}
    return {"image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), **labels}


def _labels(location: str, name: str, values: np.ndarray, classes: int) -> np.ndarray:
    if values.max() >= classes:
        index = int(np.argmax(values >= classes))
        raise damaged(location, f"{name} of record {index} is {values[index]}, but there are only {classes} classes")
    return values.astype(np.int32)
