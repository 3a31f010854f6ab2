"""Next-word or tag prediction on any site of a Stack Exchange data dump, with its users as clients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data import posts_by_user
from fedtrue.data import stackexchange as dump
from fedtrue.data.cache import cached
from fedtrue.data.columns import Example, Fixed
from fedtrue.data.locations import find
from fedtrue.data.text import encode_sentence, end_id, index_of, sentences_of
from fedtrue.names import look_up
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.next_token import next_word_task
from fedtrue.tasks.paper_rates import STACKOVERFLOW_WORDS
from fedtrue.tasks.tagged_texts import tagged_text_task
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.texts import SplitFractions, TextSource, describe_shortfall

LENGTH, EXAMPLES_PER_CLIENT = 20, 128  # words per sentence, sentences per train user, as in the paper
ALL_SITES = "posts_by_user.json.xz"
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


@named("task", defaults=False)
def stackexchange(
    *,
    kind: str = "words",
    site: str = "beer",
    path: str | Path | None = None,
    words: int = 10_000,
    tags: int = 500,
    longest: int = 500,
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    dtype: DTypeLike | None = None,
    embedding: int = 96,
    hidden: int = 670,
    projection: int = 96,
) -> Task:
    """Posts of a Stack Exchange site: predict the next word of a sentence, or the tags of a question.

    Args:
        kind: "words" or "tags".
        site: of the file `<site>.Posts.xml` (or .xz, .gz, .bz2, .7z, or the archive `<site>.stackexchange.com.7z`);
            "all" is `posts_by_user.json.xz`.
        path: a file in one of these formats, instead of `site`.
        words: size of the vocabulary, at most; words are counted on train users only.
        tags: number of tags, at most, likewise.
        longest: words of a post that are kept, for `kind="tags"`.
        validation: fraction of the users to hold out for tuning.
        test: fraction of the users to test on. A user's split depends on a hash of the user id and `seed`.
        seed: of the splits.
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        embedding: width of the word model's embedding.
        hidden: units of its LSTM.
        projection: width of the dense layer before its output.

    Returns:
        The task. Without its data file it raises an error that says how to get it.
    """
    sizes = {"embedding": embedding, "hidden": hidden, "projection": projection}
    kinds = {
        "words": lambda origin: _words_task(origin, words, compute_dtype(dtype), sizes),
        "tags": lambda origin: tagged_text_task(
            origin,
            words=words,
            tags=tags,
            longest=longest,
            dtype=compute_dtype(dtype),
            described_as="Stack Exchange dump",
        ),
    }
    make = look_up("kind", kinds, kind)
    fractions = SplitFractions(validation, test, seed).check()
    file = Path(path) if path is not None else find("stackexchange", *_file_names(site))
    read = posts_by_user.read if ".json" in file.suffixes else dump.read
    return make(TextSource("stackexchange", file, read, fractions))


def _file_names(site: str) -> list[str]:
    if site == "all":
        return [ALL_SITES, ALL_SITES.removesuffix(".xz")]
    endings = ("", ".xz", ".gz", ".bz2", ".7z")
    return [*(f"{site}.Posts.xml{ending}" for ending in endings), f"{site}.stackexchange.com.7z"]


def _words_task(origin: TextSource, words: int, dtype: DTypeLike, sizes: dict[str, int]) -> Task:
    check_positive(words=words)
    vocabulary = origin.vocabulary(words).words
    word_ids = index_of(vocabulary)

    def rows() -> Iterator[Example]:
        for client, post in origin.read(origin.path):
            for sentence in sentences_of(post):
                encoded = encode_sentence([word.encode() for word in sentence], word_ids, LENGTH)
                yield client, {"tokens": encoded}

    data = cached(
        f"{origin.name}-words",
        [origin.path],
        CONVERSION_VERSION,
        {"parts": list(origin.fractions), "words": words},
        {"tokens": Fixed((LENGTH + 1,), np.min_scalar_type(end_id(word_ids)))},
        rows,
    )
    splits: dict[str, Any] = origin.fractions.split(data, origin.path.name)
    return next_word_task(
        name=origin.name,
        words=vocabulary,
        train=splits.pop("train").take(EXAMPLES_PER_CLIENT),
        **splits,
        rounds=1500,
        recommended=STACKOVERFLOW_WORDS,
        source=f"Stack Exchange dump ({origin.path.name}), {len(data):,} users"
        + describe_shortfall("words", len(vocabulary), words),
        dtype=dtype,
        **sizes,
    )
