"""Images in one folder per class, `[<split>/]<class>/<name>.jpg`, on disk or in a tar archive."""

import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedtrue.data.compressed import damaged, open_binary

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


@dataclass(frozen=True)
class Entry:
    """One image, not decoded yet."""

    name: str
    class_name: str
    content: Callable[[], bytes]

    @property
    def outer_folder(self) -> str:
        """The folder that contains the folder of the class: a split, a client, or '' if there is none."""
        return PurePosixPath(self.name).parent.parent.name


def read(path: str | Path, split: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (class name, {image (h, w, 3) uint8, label}), sorted by name, the same for a folder and an archive.

    A label is the index of the class among the sorted class names of the split. The classes are used as clients: for
    other clients, collect the arrays and partition them with `fedtrue.data.partition`.
    """
    with open_entries(Path(path), split) as entries:
        labels = {name: label for label, name in enumerate(sorted({entry.class_name for entry in entries}))}
        for entry in entries:
            image = _decode(f"{path}, {entry.name}", entry.content())
            yield entry.class_name, {"image": image, "label": labels[entry.class_name]}


@contextmanager
def open_entries(path: Path, split: str | None = None) -> Iterator[list[Entry]]:
    """The images of one split, sorted by name. They can be decoded only while the context is open."""
    with open_all(path) as entries:
        yield _entries_of_split(path, entries, split)


def _folder_entries(root: Path) -> list[Entry]:
    files = [(file.relative_to(root).as_posix(), file) for file in root.rglob("*") if file.is_file()]
    return [_entry(name, file.read_bytes) for name, file in files if _is_image(name)]


def _tar_entries(archive: tarfile.TarFile) -> list[Entry]:
    members = [member for member in archive.getmembers() if member.isfile() and _is_image(member.name)]
    return [_entry(member.name, _member_reader(archive, member)) for member in members]


def _entry(name: str, content: Callable[[], bytes]) -> Entry:
    return Entry(name.removeprefix("./"), PurePosixPath(name).parent.name, content)


def _member_reader(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], bytes]:
    def content() -> bytes:
        stream = archive.extractfile(member)
        assert stream is not None  # members are files, see _tar_entries
        return stream.read()

    return content


def _is_image(name: str) -> bool:
    inner = PurePosixPath(name)
    return inner.suffix.lower() in IMAGE_SUFFIXES and bool(inner.parent.name)


@contextmanager
def open_all(path: Path) -> Iterator[list[Entry]]:
    """All images, sorted by name, whatever their folders mean. They can be read only while the context is open."""
    if path.is_dir():
        yield _sorted_entries(path, _folder_entries(path))
    else:
        with _random_access_tar(path) as archive:
            yield _sorted_entries(path, _tar_entries(archive))


def _sorted_entries(path: Path, entries: list[Entry]) -> list[Entry]:
    if not entries:
        raise ValueError(f"{path} contains no <class>/<name>.jpg: give a folder or tar with one folder per class")
    return sorted(entries, key=lambda entry: entry.name)


def _entries_of_split(path: Path, entries: list[Entry], split: str | None) -> list[Entry]:
    splits = sorted({entry.outer_folder for entry in entries} - {""})
    if split is None and len(splits) > 1:
        raise ValueError(f"{path} contains the splits {', '.join(splits)}: choose one of them")
    if split is not None and split not in splits:
        raise ValueError(f"{path} contains no split {split!r}: choose {', '.join(splits) or 'none, it has no splits'}")
    return [entry for entry in entries if split in (None, entry.outer_folder)]


@contextmanager
def _random_access_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """The archive, decompressed into a temporary file so that members can be read in any order."""
    with tempfile.TemporaryFile(prefix="fedtrue-tar-") as unpacked:
        with open_binary(path) as stream:
            shutil.copyfileobj(stream, unpacked)
        unpacked.seek(0)
        try:
            with tarfile.open(fileobj=unpacked, mode="r:") as archive:
                yield archive
        except tarfile.TarError as error:
            raise damaged(path, f"not a readable tar archive: {error}") from error


def _decode(location: str, content: bytes) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        reason = "not a known image format" if isinstance(error, UnidentifiedImageError) else error
        raise damaged(location, str(reason)) from error
