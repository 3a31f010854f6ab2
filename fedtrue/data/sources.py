"""Files of any known format as rows: one table from the name of a format to the function that opens its files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.data import arrow_rows, csv_rows, image_folder, json_lines, leaf, tff_hdf5, tff_sqlite
from fedtrue.data.columns import batched
from fedtrue.data.conversion import Roles
from fedtrue.data.rows import Rows, rows_per_chunk
from fedtrue.names import look_up

CLIENT = "client"  # the column of the client in formats that have clients
SPLITS = ("train", "validation", "test")
SPLIT_NAMES = {  # what folders, files and arrays of a split are called
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "heldout": "validation",
    "held_out": "validation",
    "test": "test",
}
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".lzma")
EXAMPLES_PER_CHUNK = 256  # of sources that yield one example at a time

Read = Callable[[], Iterator[Rows]]


@dataclass(frozen=True)
class Source:
    """Files, opened: the rows of each split can be read several times."""

    splits: Mapping[str, Read]  # "train" alone if the source has no splits
    files: Sequence[Path]
    roles: Mapping[str, Any] = field(default_factory=dict)  # what the format says about its columns
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # column → names of its classes, where declared

    def roles_with(self, **given: Any) -> Roles:
        """The given roles of columns, else those that the format fixes."""
        roles = {**self.roles, **{name: value for name, value in given.items() if value is not None}}
        if roles.get("label") in self.classes:
            roles.setdefault("classes", self.classes[roles["label"]])
        return Roles(**{"client": None, **roles})

    @property
    def folder(self) -> Path:
        """Where paths of images in a table start."""
        return self.files[0].parent if self.files else Path()


def open_source(paths: Sequence[str | Path], file_format: str | None = None) -> Source:
    """The files as rows; the format is guessed from the name of the first one if it is not given."""
    files = [Path(path) for path in paths]
    for file in files:
        if not file.exists():
            raise ValueError(f"{file} does not exist: check the path")
    source = look_up("format", FORMATS, file_format or guess_format(files[0]))(files)
    return replace(source, splits={split: source.splits[split] for split in ordered_splits(source.splits)})


def ordered_splits(names: Iterable[str]) -> list[str]:
    """train, validation, test, then others."""
    names = list(names)
    return [*(name for name in SPLITS if name in names), *(name for name in names if name not in SPLITS)]


def guess_format(path: Path) -> str:
    """The format that the name of a file, or the files in a folder, suggest."""
    if path.is_dir():
        return _guess_folder(path)
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED_SUFFIXES]
    suffix = suffixes[-1].lower() if suffixes else ""
    if suffix not in SUFFIXES:
        raise ValueError(f"the format of {path} is not clear from its name: give one of {', '.join(FORMATS)}")
    return SUFFIXES[suffix]


def _guess_folder(folder: Path) -> str:
    if any((folder / name).exists() for name in ("dataset_info.json", "dataset_dict.json")):
        return "huggingface"
    names = {path.suffix.lower() for path in folder.glob("*")} | {path.suffix.lower() for path in folder.glob("*/*")}
    for suffix, file_format in SUFFIXES.items():
        if suffix in names and file_format in ("leaf", "parquet", "csv", "jsonl"):
            return file_format
    return "images"


def _files_in(paths: Sequence[Path], *suffixes: str) -> list[Path]:
    """The files, and those with one of the suffixes in folders, sorted by name."""
    found = []
    for path in paths:
        inside = sorted(file for suffix in suffixes for file in path.glob(f"*{suffix}*")) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"{path} contains no {' or '.join(suffixes)} file: check the folder")
        found += inside
    return found


def _by_split(paths: Sequence[Path], open_files: Callable[[Sequence[Path]], Source]) -> Source:
    """A folder with the folders train and test has splits; anything else is one."""
    if len(paths) == 1 and paths[0].is_dir():
        folders = {SPLIT_NAMES[f.name]: f for f in sorted(paths[0].iterdir()) if f.is_dir() and f.name in SPLIT_NAMES}
        if "train" in folders:
            opened = {split: open_files([folder]) for split, folder in folders.items()}
            reads = {split: source.splits["train"] for split, source in opened.items()}
            files = [file for source in opened.values() for file in source.files]
            return Source(reads, files, opened["train"].roles, opened["train"].classes)
    return open_files(paths)


def _chained(files: Sequence[Path], read: Callable[[Path], Iterator[Rows]]) -> Read:
    return lambda: chain.from_iterable(read(file) for file in files)


def _in_chunks(where: str, examples: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Rows]:
    """Rows from (client, {column: value}) examples."""
    first = 1
    for batch in batched(examples, EXAMPLES_PER_CHUNK):
        names = batch[0][1]
        columns: dict[str, Any] = {name: [example.get(name) for _, example in batch] for name in names}
        yield Rows({CLIENT: [client for client, _ in batch], **columns}, where, first)
        first += len(batch)


def _open_csv(paths: Sequence[Path]) -> Source:
    def one_split(paths: Sequence[Path]) -> Source:
        files = _files_in(paths, ".csv", ".tsv")
        return Source({"train": _chained(files, csv_rows.read)}, files)

    return _by_split(paths, one_split)


def _open_json_lines(paths: Sequence[Path]) -> Source:
    def one_split(paths: Sequence[Path]) -> Source:
        files = _files_in(paths, ".jsonl", ".ndjson")
        return Source({"train": _chained(files, _json_rows)}, files)

    return _by_split(paths, one_split)


def _json_rows(path: Path) -> Iterator[Rows]:
    first, names = 1, None
    for batch in batched((record for _, record in json_lines.read_objects(path)), EXAMPLES_PER_CHUNK):
        names = list(batch[0]) if names is None else names
        yield Rows({name: [record.get(name) for record in batch] for name in names}, str(path), first)
        first += len(batch)


def _open_parquet(paths: Sequence[Path]) -> Source:
    def one_split(paths: Sequence[Path]) -> Source:
        files = _files_in(paths, ".parquet")
        classes = arrow_rows.classes_in_parquet(files[0])
        read = _chained(files, arrow_rows.from_parquet)
        return Source({"train": lambda: arrow_rows.with_class_names(read(), classes)}, files, classes=classes)

    return _by_split(paths, one_split)


def _open_huggingface(paths: Sequence[Path]) -> Source:
    def one_split(paths: Sequence[Path]) -> Source:
        files = _files_in(paths, ".arrow")
        information = files[0].parent / "dataset_info.json"
        features = json.loads(information.read_text()).get("features", {}) if information.exists() else {}
        classes = arrow_rows.declared_classes(features)
        read = _chained(files, arrow_rows.from_stream_file)
        return Source({"train": lambda: arrow_rows.with_class_names(read(), classes)}, files, classes=classes)

    return _by_split(paths, one_split)


def _open_leaf(paths: Sequence[Path]) -> Source:
    def one_split(paths: Sequence[Path]) -> Source:
        files = _files_in(paths, ".json")
        read = _chained(files, lambda file: _in_chunks(str(file), leaf.read(file)))
        return Source({"train": read}, files, {"client": CLIENT, "label": "y"})

    return _by_split(paths, one_split)


def _open_images(paths: Sequence[Path]) -> Source:
    """[<split> or <client>/]<class>/<name>.jpg: columns image, label, folder (of the class's folder)."""
    path = _single(paths, "images")
    with image_folder.open_all(path) as entries:
        folders = {entry.outer_folder for entry in entries}
    splits = {SPLIT_NAMES[name]: name for name in folders if name in SPLIT_NAMES}
    names: Mapping[str, str | None] = splits if "train" in splits else {"train": None}
    reads = {split: partial(_image_rows, path, name) for split, name in names.items()}
    return Source(reads, [] if path.is_dir() else [path], {"label": "label", "image": "image"})


def _image_rows(path: Path, folder: str | None) -> Iterator[Rows]:
    with image_folder.open_all(path) as entries:
        chosen = [entry for entry in entries if folder in (None, entry.outer_folder)]
        for first in range(0, len(chosen), EXAMPLES_PER_CHUNK):
            batch = chosen[first : first + EXAMPLES_PER_CHUNK]
            columns: dict[str, Any] = {
                "image": [entry.content() for entry in batch],
                "label": [entry.class_name for entry in batch],
                "folder": [entry.outer_folder for entry in batch],
            }
            yield Rows(columns, str(path), first + 1)


def _open_npz(paths: Sequence[Path]) -> Source:
    """Arrays of equal length; or of the splits, as x_train, y_train, x_test, y_test."""
    path = _single(paths, "npz")
    arrays = _npz_arrays(path)
    by_split: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        column, _, suffix = name.rpartition("_")
        split = SPLIT_NAMES.get(suffix) if column else None
        by_split.setdefault(split or "train", {})[column if split else name] = array
    for columns in by_split.values():
        lengths = {name: len(array) for name, array in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{path} has arrays of unequal length {lengths}: give one row per example in each")
    return Source({split: partial(_array_rows, path, columns) for split, columns in by_split.items()}, [path])


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a NumPy archive: save arrays of numbers with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        reason = "it holds Python objects" if "pickle" in str(error) else "it is damaged"
        raise ValueError(f"{path} cannot be read ({reason}): save arrays of numbers with numpy.savez") from None
    if not arrays or any(array.ndim == 0 for array in arrays.values()):
        raise ValueError(f"{path} needs arrays with one row per example: save them with numpy.savez")
    return arrays


def _array_rows(path: Path, columns: Mapping[str, np.ndarray]) -> Iterator[Rows]:
    count = len(next(iter(columns.values())))
    step = rows_per_chunk(sum(array[0].size for array in columns.values()) if count else 1)
    for first in range(0, count, step):
        yield Rows({name: array[first : first + step] for name, array in columns.items()}, str(path), first + 1)


def _open_tff(paths: Sequence[Path]) -> Source:
    """TFF's SQLite file with all splits, or one HDF5 file per split."""
    if paths[0].suffix in (".h5", ".hdf5"):
        names = tff_hdf5.feature_names(paths[0])
        read = _chained(paths, lambda file: _in_chunks(str(file), tff_hdf5.read(file, names)))
        return Source({"train": read}, paths, {"client": CLIENT})
    path = _single(paths, "tff")
    names = tff_sqlite.feature_names(path)
    splits = {SPLIT_NAMES.get(split, split): split for split in tff_sqlite.splits(path)}
    reads = {split: partial(_sqlite_rows, path, name, names) for split, name in splits.items()}
    return Source(reads, [path], {"client": CLIENT})


def _sqlite_rows(path: Path, split: str, names: Sequence[str]) -> Iterator[Rows]:
    return _in_chunks(str(path), tff_sqlite.read(path, split, names))


def _single(paths: Sequence[Path], file_format: str) -> Path:
    if len(paths) != 1:
        raise ValueError(f"the format {file_format} is read from one file or folder, not from {len(paths)}: give one")
    return paths[0]


FORMATS: dict[str, Callable[[Sequence[Path]], Source]] = {
    "csv": _open_csv,
    "jsonl": _open_json_lines,
    "parquet": _open_parquet,
    "huggingface": _open_huggingface,
    "leaf": _open_leaf,
    "images": _open_images,
    "npz": _open_npz,
    "tff": _open_tff,
}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "huggingface",
    ".json": "leaf",
    ".npz": "npz",
    ".h5": "tff",
    ".hdf5": "tff",
    ".sqlite": "tff",
    ".tar": "images",
    ".tgz": "images",
}
