"""Sentences as rows of word ids, laid out as in the paper: 0 pads, words from 1, then unknown, begin, end."""

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

PAD = 0


def index_of(words: Sequence[str]) -> dict[bytes, int]:
    """word → id, most frequent first: 1 … V. Words are bytes, as the files hold them, so none is ever decoded."""
    return {word.encode(): word_id for word_id, word in enumerate(words, start=1)}


def unknown_id(vocabulary_index: Mapping[bytes, int]) -> int:
    return len(vocabulary_index) + 1


def begin_id(vocabulary_index: Mapping[bytes, int]) -> int:
    return len(vocabulary_index) + 2


def end_id(vocabulary_index: Mapping[bytes, int]) -> int:
    return len(vocabulary_index) + 3


def encode_sentence(words: Sequence[bytes], vocabulary_index: Mapping[bytes, int], length: int) -> list[int]:
    """[begin, at most `length` word ids, end if there is room, pads]: always `length + 1` ids.

    >>> encode_sentence([b"the", b"zebra"], {b"the": 1, b"a": 2}, length=4)
    [4, 1, 3, 5, 0]
    """
    unknown, word_id = unknown_id(vocabulary_index), vocabulary_index.get
    ids = [begin_id(vocabulary_index), *[word_id(word, unknown) for word in words[:length]]]
    if len(ids) <= length:
        ids.append(end_id(vocabulary_index))
        ids += [PAD] * (length + 1 - len(ids))
    return ids


def encode_sentences(sentences: Sequence[bytes], vocabulary_index: Mapping[bytes, int], length: int) -> np.ndarray:
    """`encode_sentence` of every sentence, split at spaces, as an array [sentences, length + 1]: faster in bulk."""
    word_counts = np.array([sentence.count(b" ") + 1 for sentence in sentences], np.int64)
    words = b" ".join(sentences).split(b" ")[: word_counts.sum()]  # no sentences have no words, where split gives one
    ids = np.fromiter(map(vocabulary_index.get, words, repeat(unknown_id(vocabulary_index))), np.int32, len(words))
    sentence = np.repeat(np.arange(len(sentences)), word_counts)
    place = np.arange(len(words)) - np.repeat(np.cumsum(word_counts) - word_counts, word_counts)
    kept = place < length
    rows = np.full((len(sentences), length + 1), PAD, np.int32)
    rows[:, 0] = begin_id(vocabulary_index)
    rows[sentence[kept], 1 + place[kept]] = ids[kept]
    short = np.flatnonzero(word_counts < length)
    rows[short, 1 + word_counts[short]] = end_id(vocabulary_index)
    return rows
