"""Words and sentences of texts; sentences as rows of word ids, numbered as in the paper: 0 is padding, words from 1,
then unknown, begin, end.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

PAD = 0

_WORD = re.compile(r"\w+(?:['’+#.-]\w+)*[+#]*")  # don't  state-of-the-art  1.5  c++  c#
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def words_of(text: str) -> list[str]:
    """Lower-case words, without punctuation.

    >>> words_of("Don't use C++, use 1.5.")
    ["don't", 'use', 'c++', 'use', '1.5']
    """
    return _WORD.findall(text.lower())


def sentences_of(example: dict[str, Any]) -> Iterator[list[str]]:
    """The words of the title and of each sentence of the text; sentences without a word are skipped."""
    for sentence in [example["title"], *_SENTENCE_END.split(example["text"])]:
        if words := words_of(sentence):
            yield words


def most_frequent(counts: Counter[str], size: int) -> list[str]:
    """The `size` most frequent names, ties sorted alphabetically."""
    return sorted(counts, key=lambda name: (-counts[name], name))[:size]


def index_of(words: Sequence[str]) -> dict[bytes, int]:
    """word → id, 1 … V in the given order. Words are bytes, as in the files, so that none needs decoding."""
    return {word.encode(): word_id for word_id, word in enumerate(words, start=1)}


def unknown_id(vocabulary_index: Mapping[bytes, int]) -> int:
    """The id of words outside the vocabulary."""
    return len(vocabulary_index) + 1


def begin_id(vocabulary_index: Mapping[bytes, int]) -> int:
    """The id at the start of a sentence."""
    return len(vocabulary_index) + 2


def end_id(vocabulary_index: Mapping[bytes, int]) -> int:
    """The id at the end of a sentence."""
    return len(vocabulary_index) + 3


def encode_sentence(words: Sequence[bytes], vocabulary_index: Mapping[bytes, int], length: int) -> list[int]:
    """[begin, at most `length` word ids, end if it fits, padding]: always `length + 1` ids.

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
    """`encode_sentence` of every sentence, split at spaces, as an array (sentences, length + 1): faster for many."""
    word_counts = np.array([sentence.count(b" ") + 1 for sentence in sentences], np.int64)
    words = b" ".join(sentences).split(b" ")[: word_counts.sum()]  # of no sentences, split returns one word
    ids = np.fromiter(map(vocabulary_index.get, words, repeat(unknown_id(vocabulary_index))), np.int32, len(words))
    sentence = np.repeat(np.arange(len(sentences)), word_counts)
    position = np.arange(len(words)) - np.repeat(np.cumsum(word_counts) - word_counts, word_counts)
    kept = position < length
    rows = np.full((len(sentences), length + 1), PAD, np.int32)
    rows[:, 0] = begin_id(vocabulary_index)
    rows[sentence[kept], 1 + position[kept]] = ids[kept]
    short = np.flatnonzero(word_counts < length)
    rows[short, 1 + word_counts[short]] = end_id(vocabulary_index)
    return rows
