"""Vocabularies and splits of texts by many users, for the tasks on posts and descriptions."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtrue.data.cache import cached_folder
from fedtrue.data.client_data import ClientData
from fedtrue.data.text import most_frequent, words_of

VOCABULARY_VERSION = 1  # increase it when the same file gives another vocabulary

Texts = Iterable[tuple[str, dict[str, Any]]]  # (client, {title, text, tags})


class SplitFractions(NamedTuple):
    """The split of clients by a hash of their id: the same on every machine, and independent of the other clients."""

    validation: float
    test: float
    seed: int

    def check(self) -> "SplitFractions":
        """Returns itself; fractions that leave no data for training or testing raise a ValueError."""
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1 or not self.test:
            raise ValueError(
                f"validation={self.validation} and test={self.test}: choose fractions of at least 0, test above 0, "
                "with a sum below 1"
            )
        return self

    def split_of(self, client: str) -> str:
        """The split of a client: "train", "validation" or "test"."""
        digest = hashlib.sha256(f"{self.seed}:{client}".encode()).digest()
        uniform = int.from_bytes(digest[:8], "big") / 2**64
        return "test" if uniform < self.test else "validation" if uniform < self.test + self.validation else "train"

    def split(self, data: ClientData, file_name: str) -> dict[str, Any]:
        """{train, validation, test}: ClientData, or None if the fraction is 0; an empty split raises a ValueError."""
        names = np.array([self.split_of(client) for client in data.client_ids])
        fractions = {"train": 1.0, "validation": self.validation, "test": self.test}
        for split, fraction in fractions.items():
            if fraction and not (names == split).any():
                raise ValueError(
                    f"{file_name} has {len(data)} clients, none of them in {split} (fraction {fraction:g}): "
                    "choose a larger fraction, another seed or more data"
                )
        return {
            split: data.subset(np.flatnonzero(names == split)) if fraction else None
            for split, fraction in fractions.items()
        }


class Vocabulary(NamedTuple):
    """The most frequent words and tags of the train clients, most frequent first."""

    words: list[str]
    tags: list[str]


class TextSource(NamedTuple):
    """A file of texts, how to read it, and how to split its clients."""

    name: str  # of the task
    path: Path
    read: Callable[[Path], Texts]
    fractions: SplitFractions

    def vocabulary(self, words: int, tags: int = 0) -> Vocabulary:
        """The most frequent `words` and `tags`, counted once and cached with the converted data.

        Ties are sorted alphabetically.
        """
        key = {"version": VOCABULARY_VERSION, "parts": list(self.fractions), "words": words, "tags": tags}
        folder = cached_folder(
            f"{self.name}-vocabulary", [self.path], key, lambda folder: self._count(folder, words, tags)
        )
        found = json.loads((folder / "vocabulary.json").read_text())
        return Vocabulary(found["words"], found["tags"])

    def _count(self, folder: Path, words: int, tags: int) -> dict[str, Any]:
        word_counts: Counter[str] = Counter()
        tag_counts: Counter[str] = Counter()
        for client, example in self.read(self.path):
            if self.fractions.split_of(client) == "train":
                word_counts.update(words_of(f"{example['title']} {example['text']}"))
                tag_counts.update(example["tags"])
        found = {"words": most_frequent(word_counts, words), "tags": most_frequent(tag_counts, tags)}
        (folder / "vocabulary.json").write_text(json.dumps(found))
        return {kind: len(names) for kind, names in found.items()}


def describe_shortfall(kind: str, found: int, requested: int) -> str:
    """For `Task.source`: how many were found, if fewer than requested, else ''.

    >>> describe_shortfall("tags", found=312, requested=500)
    ', only 312 of the 500 requested tags'
    """
    return f", only {found:,} of the {requested:,} requested {kind}" if found < requested else ""
