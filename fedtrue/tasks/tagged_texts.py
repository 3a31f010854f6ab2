"""Tag prediction on any texts with a title, a body and tags: posts of a site, descriptions of packages."""

from collections.abc import Iterator
from typing import Any

from jax.typing import DTypeLike

from fedtrue.data.cache import cached
from fedtrue.data.columns import Example
from fedtrue.data.text import words_of
from fedtrue.tasks.paper_rates import STACKOVERFLOW_TAGS
from fedtrue.tasks.tag_prediction import ids_by_name, known_ids, tag_schema, tag_task
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.texts import TextSource, Vocabulary, describe_shortfall

EXAMPLES_PER_CLIENT = 1000  # the first ones of each train client are kept, as in the paper
CONVERSION_VERSION = 1  # increase it when the same file gives other rows


def tagged_text_task(
    origin: TextSource, *, words: int, tags: int, longest: int, dtype: DTypeLike, described_as: str
) -> Task:
    """The paper's tag model on texts with a known tag; the recommended rates are the paper's for Stack Overflow.

    The first `longest` words of a text are kept: a single very long text would widen every batch.
    """
    check_positive(words=words, tags=tags, longest=longest)
    vocabulary = origin.vocabulary(words, tags)
    if not vocabulary.tags:
        raise ValueError(f"{origin.path} has no tags among its train clients: choose another file or seed")
    data = cached(
        f"{origin.name}-tags",
        [origin.path],
        CONVERSION_VERSION,
        {"parts": list(origin.fractions), "words": words, "tags": tags, "longest": longest},
        tag_schema(len(vocabulary.words), len(vocabulary.tags)),
        lambda: _texts(origin, vocabulary, longest),
    )
    splits: dict[str, Any] = origin.fractions.split(data, origin.path.name)
    found = (("words", len(vocabulary.words), words), ("tags", len(vocabulary.tags), tags))
    shortfall = "".join(describe_shortfall(*counts) for counts in found)
    return tag_task(
        name=origin.name,
        words=vocabulary.words,
        tags=vocabulary.tags,
        train=splits.pop("train").take(EXAMPLES_PER_CLIENT),
        **splits,
        rounds=1500,
        recommended=STACKOVERFLOW_TAGS,
        source=f"{described_as} ({origin.path.name}), {len(data):,} clients with tagged texts{shortfall}",
        dtype=dtype,
    )


def _texts(origin: TextSource, vocabulary: Vocabulary, longest: int) -> Iterator[Example]:
    word_ids, tag_ids = ids_by_name(vocabulary.words), ids_by_name(vocabulary.tags)
    for client, text in origin.read(origin.path):
        if tags := known_ids(text["tags"], tag_ids):
            words = words_of(f"{text['title']} {text['text']}")[:longest]
            yield client, {"words": known_ids(words, word_ids), "tags": tags}
