"""Data sets that a user has imported: converted once, by streaming, to columns on disk, and found by name.

    $FEDTRUE_DATA/imported/NAME/meta.json           format, roles of columns, classes, source files, counts
    $FEDTRUE_DATA/imported/NAME/vocabularies.json   what the integers of a column stand for
    $FEDTRUE_DATA/imported/NAME/train/…             columns, see columns.py; likewise test, validation

Memory is bounded for any number of rows: they are read twice, in chunks. A partition needs the label of every row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedtrue.data import columns
from fedtrue.data.cache import META, build_folder, is_intact, source_identity
from fedtrue.data.client_data import ClientData
from fedtrue.data.import_stream import VOCABULARIES, ImportPlan, convert
from fedtrue.data.locations import data_folders, data_root
from fedtrue.data.sources import Source, ordered_splits

FOLDER = "imported"
IMPORT_VERSION = 1  # of the layout of a data set's folder
NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class DamagedDataSet(ValueError):
    """A file of an imported data set is missing or has another size."""


@dataclass(frozen=True)
class Imported:
    """An imported data set; `meta` is its meta.json."""

    name: str
    folder: Path
    meta: Mapping[str, Any]

    def splits(self) -> dict[str, ClientData]:
        """The data of each split, memory-mapped."""
        schema = columns.schema_from(self.meta["columns"])
        vocabularies = json.loads((self.folder / VOCABULARIES).read_text())
        return {
            split: replace(columns.open_columns(self.folder / split, schema), vocabularies=vocabularies)
            for split in self.counts
        }

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The numbers of clients and examples of each split."""
        counts = self.meta["splits"]
        return {split: counts[split] for split in ordered_splits(counts)}

    @property
    def summary(self) -> str:
        """One line: kind, clients, examples, classes."""
        meta = self.meta
        counts = meta["splits"]["train"]
        classes = f", {meta['classes']} classes" if meta["classes"] else ""
        return (
            f"your data ({meta['format']}): {meta['kind'].replace('_', ' ')}, {counts['clients']:,} clients, "
            f"{counts['examples']:,} examples{classes}"
        )


def imported(name: str) -> dict[str, ClientData]:
    """The data of a data set that `fedtrue data import NAME` has imported.

    Args:
        name: of the data set.

    Returns:
        The data of each split, memory-mapped: train, and test or validation if they exist. Images are stored with
        pixels from 0 to 255.
    """
    return find_imported(name).splits()


def find_imported(name: str) -> Imported:
    """The data set of this name; a ValueError with the valid names if it does not exist."""
    if (found := imported_if_exists(name)) is None:
        names = ", ".join(imported_names()) or "none yet"
        raise ValueError(f"no data set {name!r} was imported (there are: {names}): fedtrue data import {name} FILE")
    return found


def imported_if_exists(name: str) -> Imported | None:
    """The data set of this name, or None; a damaged one raises `DamagedDataSet`."""
    for root in data_folders():
        folder = root / FOLDER / name
        if NAME_PATTERN.fullmatch(name) and (folder / META).is_file():
            if not is_intact(folder):
                raise DamagedDataSet(f"{folder} is damaged: import the data set again with --replace")
            return Imported(name, folder, json.loads((folder / META).read_text()))
    return None


def imported_names() -> list[str]:
    """The names of all imported data sets."""
    found = {meta.parent.name for root in data_folders() for meta in (root / FOLDER).glob(f"*/{META}")}
    return sorted(name for name in found if NAME_PATTERN.fullmatch(name))


def import_source(
    name: str,
    source: Source,
    test: Source | None,
    plan: ImportPlan,
    overwrite: bool = False,
    progress: Callable[[str, int], None] | None = None,
) -> Imported:
    """Convert a source to a data set of this name; it appears only when it is complete.

    Args:
        name: letters, digits, _ and -.
        source: the rows, see `sources.open_source`.
        test: rows to test on, if they are in other files.
        plan: roles of columns, partition, test fraction.
        overwrite: replace a data set of the same name.
        progress: called with ("reading" or "writing", rows so far).
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a data set: use letters, digits, _ and -, a letter first")
    splits = dict(source.splits)
    if test is not None:
        splits["test"] = test.splits.get("test") or next(iter(test.splits.values()))
    plan.check(has_test="test" in splits)
    folder = data_root() / FOLDER / name
    if folder.exists() and not overwrite:
        raise ValueError(f"{folder} exists already: give another name, or --replace")
    files = [*source.files, *(test.files if test is not None else ())]
    key = {
        "layout": IMPORT_VERSION,
        "name": name,
        "format": plan.file_format,
        "roles": {role: value for role, value in asdict(plan.roles).items() if value not in (None, ())},
        "partition": None if plan.partition is None else {**asdict(plan.partition), "seed": plan.seed},
        "test_fraction": plan.test_fraction,
        "sources": [{**source_identity(file), "path": str(file.resolve())} for file in files],
    }
    build = lambda folder: convert(folder, source.folder, splits, plan, progress or (lambda stage, rows: None))
    build_folder(folder, key, build, "FEDTRUE_DATA", replace=overwrite)
    return find_imported(name)
