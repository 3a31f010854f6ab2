"""Columns of word ids from the texts of a user's table: sentences for next words, bags of words for tags or labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedtrue.data.columns import Fixed, Schema, Varying
from fedtrue.data.parts import Converted
from fedtrue.data.rows import Rows, is_missing, texts
from fedtrue.data.text import encode_sentence, end_id, index_of, most_frequent, sentences_of, words_of

SENTENCE_WORDS = 20  # longer sentences are cut, as in the paper
TEXT_WORDS = 500  # of a text that becomes a bag of words; a single very long text would widen every batch
TAGS = 500  # the most frequent ones


class Sentences:
    """Column `tokens`: each sentence of a text is one example, begin, at most SENTENCE_WORDS word ids, end, padding."""

    def __init__(self, name: str, words: int):
        self._name, self._words = name, words
        self._counts: Counter[str] = Counter()

    def scan(self, rows: Rows) -> None:
        for text in texts(rows, self._name):
            self._counts.update(words_of(text))

    @cached_property
    def vocabulary(self) -> list[str]:
        return most_frequent(self._counts, self._words)

    @cached_property
    def _word_ids(self) -> dict[bytes, int]:
        return index_of(self.vocabulary)

    def schema(self) -> Schema:
        return {"tokens": Fixed((SENTENCE_WORDS + 1,), np.min_scalar_type(end_id(self._word_ids)))}

    def vocabularies(self) -> Mapping[str, Sequence[str]]:
        return {"tokens": self.vocabulary}

    def convert(self, rows: Rows) -> Converted:
        tokens, kept = [], []
        for row, text in enumerate(texts(rows, self._name)):
            for words in sentences_of({"title": "", "text": text}):
                tokens.append(encode_sentence([word.encode() for word in words], self._word_ids, SENTENCE_WORDS))
                kept.append(row)
        columns = {"tokens": np.array(tokens, np.int64).reshape(-1, SENTENCE_WORDS + 1)}
        return Converted(columns, np.array(kept, np.int64))


class BagsOfWords:
    """Column `words`: the ids of the known words of a text; with `tags` also column `tags`, the ids of its known tags.

    A text without a known tag is left out. A cell of tags is a list, or a text in which spaces, commas, semicolons or
    bars separate them.
    """

    def __init__(self, name: str, words: int, tags: str | None):
        self._name, self._words, self._tags = name, words, tags
        self._word_counts: Counter[str] = Counter()
        self._tag_counts: Counter[str] = Counter()

    def scan(self, rows: Rows) -> None:
        for text in texts(rows, self._name):
            self._word_counts.update(words_of(text))
        if self._tags is not None:
            for index, cell in enumerate(rows.column(self._tags)):
                self._tag_counts.update(_tags_of(rows, index, self._tags, cell))

    @cached_property
    def _known(self) -> tuple[dict[str, int], dict[str, int]]:
        """word → id and tag → id, from 0, most frequent first."""
        words, tags = most_frequent(self._word_counts, self._words), most_frequent(self._tag_counts, TAGS)
        return {word: i for i, word in enumerate(words)}, {tag: i for i, tag in enumerate(tags)}

    def schema(self) -> Schema:
        names = ["words"] if self._tags is None else ["words", "tags"]
        return {name: Varying(np.min_scalar_type(max(len(ids) - 1, 0))) for name, ids in zip(names, self._known)}

    def vocabularies(self) -> Mapping[str, Sequence[str]]:
        names = ["words"] if self._tags is None else ["words", "tags"]
        return {name: list(ids) for name, ids in zip(names, self._known)}

    def convert(self, rows: Rows) -> Converted:
        word_ids, tag_ids = self._known
        words = [_known_ids(words_of(text)[:TEXT_WORDS], word_ids) for text in texts(rows, self._name)]
        if self._tags is None:
            return Converted({"words": words})
        cells = enumerate(rows.column(self._tags))
        tags = [_known_ids(_tags_of(rows, index, self._tags, cell), tag_ids) for index, cell in cells]
        kept = [row for row, ids in enumerate(tags) if len(ids)]
        columns = {"words": [words[row] for row in kept], "tags": [tags[row] for row in kept]}
        return Converted(columns, np.array(kept, np.int64))


def _tags_of(rows: Rows, index: int, name: str, cell: Any) -> list[str]:
    if is_missing(cell):
        return []
    if isinstance(cell, str):
        for separator in ",;|<>":
            cell = cell.replace(separator, " ")
        return cell.split()
    if isinstance(cell, Sequence | np.ndarray) and all(isinstance(tag, str) for tag in cell):
        return list(cell)
    raise rows.error(index, name, f"is {str(cell)[:40]!r}, neither a text nor a list of texts: choose another column")


def _known_ids(names: Sequence[str], ids: Mapping[str, int]) -> np.ndarray:
    return np.array([ids[name] for name in names if name in ids], np.int64)
