"""Tag prediction on any texts with a title, a body and tags: posts of a site, descriptions of packages."""

from collections.abc import Iterator
from typing import Any

from jax.typing import DTypeLike

from fedtrue.data.cache import cached
from fedtrue.data.columns import Example
from fedtrue.tasks.paper_rates import STACKOVERFLOW_TAGS
from fedtrue.tasks.tag_prediction import index, known, schema, tag_task
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.texts import TextSource, Vocabulary, shortfall, words_of

EXAMPLES_PER_CLIENT = 1000  # kept of a train client, its first, as the paper does
VERSION = 1  # of the conversion: raised when the same file gives other rows


def tagged_text_task(
    origin: TextSource, *, words: int, tags: int, longest: int, dtype: DTypeLike, described_as: str
) -> Task:
    """The paper's tag model on the texts that have a known tag; rates recommended are those it found on Stack Overflow.

    `longest` words of a text are kept: one endless text would widen every batch.
    """
    check_positive(words=words, tags=tags, longest=longest)
    vocabulary = origin.vocabulary(words, tags)
    if not vocabulary.tags:
        raise ValueError(f"{origin.path} has no tags among its train clients: choose another file or seed")
    data = cached(
        f"{origin.name}-tags",
        [origin.path],
        VERSION,
        {"parts": list(origin.parts), "words": words, "tags": tags, "longest": longest},
        schema(len(vocabulary.words), len(vocabulary.tags)),
        lambda: _texts(origin, vocabulary, longest),
    )
    splits: dict[str, Any] = origin.parts.split(data, origin.path.name)
    short = shortfall("words", len(vocabulary.words), words) + shortfall("tags", len(vocabulary.tags), tags)
    return tag_task(
        name=origin.name,
        words=vocabulary.words,
        tags=vocabulary.tags,
        train=splits.pop("train").take(EXAMPLES_PER_CLIENT),
        **splits,
        rounds=1500,
        recommended=STACKOVERFLOW_TAGS,
        source=f"{described_as} ({origin.path.name}), {len(data):,} clients with tagged texts{short}",
        dtype=dtype,
    )


def _texts(origin: TextSource, vocabulary: Vocabulary, longest: int) -> Iterator[Example]:
    word_ids, tag_ids = index(vocabulary.words), index(vocabulary.tags)
    for client, text in origin.read(origin.path):
        if tags := known(text["tags"], tag_ids):
            words = words_of(f"{text['title']} {text['text']}")[:longest]
            yield client, {"words": known(words, word_ids), "tags": tags}
