"""Next-word prediction on Stack Overflow, the paper's first task: 342,477 users, 10,000 words, one LSTM layer."""

from collections.abc import Iterator

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data.cache import cached
from fedtrue.data.client_data import ClientData
from fedtrue.data.columns import Chunk, Fixed, batched
from fedtrue.data.locations import find
from fedtrue.data.text import encode_sentences, end_id, index_of
from fedtrue.data.vocabulary import word_counts
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.next_token import next_word_task
from fedtrue.tasks.paper_rates import STACKOVERFLOW_WORDS
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.tff_files import Split, find_split, first_examples

HDF5_NAMES = {  # the split's name in the SQLite file → its HDF5 file
    "train": "stackoverflow_train.h5",
    "heldout": "stackoverflow_held_out.h5",
    "test": "stackoverflow_test.h5",
}
WORD_COUNTS = ("stackoverflow.word_count", "stackoverflow.word_count.tar.bz2")
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


@named("task", defaults=False)
def stackoverflow_words(
    *,
    dtype: DTypeLike | None = None,
    vocabulary: int = 10_000,
    length: int = 20,
    examples_per_client: int = 128,
    embedding: int = 96,
    hidden: int = 670,
    projection: int = 96,
) -> Task:
    """Stack Overflow: predict the next word of a sentence.

    Train, validation and test are different users, as in TFF's splits. The first call converts the files.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        vocabulary: number of words; others are unknown (OOV).
        length: words per sentence; longer sentences are truncated.
        examples_per_client: sentences per train user, the first ones.
        embedding: width of the embedding.
        hidden: units of the LSTM.
        projection: width of the dense layer before the output.

    Returns:
        The task. Without its data files it raises an error that says how to download them.
    """
    check_positive(length=length, examples_per_client=examples_per_client)
    splits = {name: find_split("stackoverflow", name, file) for name, file in HDF5_NAMES.items()}
    vocabulary_path = find("stackoverflow", *WORD_COUNTS)
    words = list(word_counts(vocabulary_path, vocabulary))
    word_ids = index_of(words)

    def load_split(name: str, max_examples: int | None) -> ClientData:
        return cached(
            f"stackoverflow-words-{name}",
            [splits[name].path, vocabulary_path],
            CONVERSION_VERSION,
            {"split": name, "vocabulary": vocabulary, "length": length, "examples_per_client": max_examples},
            {"tokens": Fixed((length + 1,), np.min_scalar_type(end_id(word_ids)))},
            lambda: _rows(splits[name], word_ids, length, max_examples),
        )

    return next_word_task(
        name="stackoverflow_words",
        words=words,
        train=load_split("train", examples_per_client),
        validation=load_split("heldout", None),
        test=load_split("test", None),
        rounds=1500,
        recommended=STACKOVERFLOW_WORDS,
        source=f"TFF's Stack Overflow, the paper's own data ({splits['train'].path.name}, {vocabulary_path.name})",
        embedding=embedding,
        hidden=hidden,
        projection=projection,
        dtype=compute_dtype(dtype),
    )


def _rows(split: Split, word_ids: dict[bytes, int], length: int, max_examples: int | None) -> Iterator[Chunk]:
    for batch in batched(first_examples(split.read(["tokens"]), max_examples)):
        sentences = [example["tokens"] for _, example in batch]
        yield Chunk([client for client, _ in batch], {"tokens": encode_sentences(sentences, word_ids, length)})
