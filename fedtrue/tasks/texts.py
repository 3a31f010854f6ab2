"""Texts of many users, as the tasks on posts and descriptions take them: words, sentences, vocabularies, splits."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtrue.data.cache import cached_folder
from fedtrue.data.client_data import ClientData

_WORD = re.compile(r"\w+(?:['’+#.-]\w+)*[+#]*")  # don't  state-of-the-art  1.5  c++  c#
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
VOCABULARY_VERSION = 1  # raised when the same file gives another vocabulary

Texts = Iterable[tuple[str, dict[str, Any]]]  # (client, {title, text, tags})


def words_of(text: str) -> list[str]:
    """Lower-case words, without punctuation.

    >>> words_of("Don't use C++, use 1.5.")
    ["don't", 'use', 'c++', 'use', '1.5']
    """
    return _WORD.findall(text.lower())


def sentences_of(example: dict[str, Any]) -> Iterator[list[str]]:
    """The words of the title and of each sentence of the text; those without a word are left out."""
    for sentence in [example["title"], *_SENTENCE_END.split(example["text"])]:
        if words := words_of(sentence):
            yield words


class Parts(NamedTuple):
    """How clients are divided, by a hash of their name: the same on every machine and for every other client."""

    validation: float
    test: float
    seed: int

    def check(self) -> "Parts":
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1 or not self.test:
            raise ValueError(
                f"validation={self.validation} and test={self.test}: choose parts of at least 0, test above 0, "
                "together below 1"
            )
        return self

    def split_of(self, client: str) -> str:
        digest = hashlib.sha256(f"{self.seed}:{client}".encode()).digest()
        lot = int.from_bytes(digest[:8], "big") / 2**64
        return "test" if lot < self.test else "validation" if lot < self.test + self.validation else "train"

    def split(self, data: ClientData, place: str) -> dict[str, Any]:
        """{train, validation, test}: ClientData, or None where no part is asked for; one left empty is an error."""
        names = np.array([self.split_of(client) for client in data.client_ids])
        wanted = {"train": 1.0, "validation": self.validation, "test": self.test}
        for split, part in wanted.items():
            if part and not (names == split).any():
                raise ValueError(
                    f"{place} has {len(data)} clients, none of which falls into {split} ({part:g}): "
                    "choose a larger part, another seed or more data"
                )
        return {split: data.subset(np.flatnonzero(names == split)) if part else None for split, part in wanted.items()}


class Vocabulary(NamedTuple):
    """The most frequent words and tags of the train clients, most frequent first."""

    words: list[str]
    tags: list[str]


class TextSource(NamedTuple):
    """A file of texts, how it is read, and how its clients are divided."""

    name: str  # of the task
    path: Path
    read: Callable[[Path], Texts]
    parts: Parts

    def vocabulary(self, words: int, tags: int = 0) -> Vocabulary:
        """At most `words` and `tags` of them, counted once and kept beside the converted data.

        Equally frequent ones stand in the order of the alphabet.
        """
        key = {"version": VOCABULARY_VERSION, "parts": list(self.parts), "words": words, "tags": tags}
        folder = cached_folder(
            f"{self.name}-vocabulary", [self.path], key, lambda folder: self._count(folder, words, tags)
        )
        found = json.loads((folder / "vocabulary.json").read_text())
        return Vocabulary(found["words"], found["tags"])

    def _count(self, folder: Path, words: int, tags: int) -> dict[str, Any]:
        word_counts: Counter[str] = Counter()
        tag_counts: Counter[str] = Counter()
        for client, example in self.read(self.path):
            if self.parts.split_of(client) == "train":
                word_counts.update(words_of(f"{example['title']} {example['text']}"))
                tag_counts.update(example["tags"])
        found = {"words": _most_frequent(word_counts, words), "tags": _most_frequent(tag_counts, tags)}
        (folder / "vocabulary.json").write_text(json.dumps(found))
        return {kind: len(names) for kind, names in found.items()}


def _most_frequent(counts: Counter[str], size: int) -> list[str]:
    return sorted(counts, key=lambda name: (-counts[name], name))[:size]


def shortfall(kind: str, have: int, asked: int) -> str:
    """', only 312 of the 500 tags asked for' when there are fewer, else ''."""
    return f", only {have:,} of the {asked:,} {kind} asked for" if have < asked else ""
