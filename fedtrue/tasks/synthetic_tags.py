"""A stand-in for Stack Overflow tag prediction: its shapes, Zipf-distributed words and tags, clients with topics."""

from functools import partial

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data.client_data import ClientData, ClientIds, Ragged
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.paper_rates import STACKOVERFLOW_TAGS
from fedtrue.tasks.tag_prediction import tag_task
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.zipf import client_sizes, favourite_topics, of_topic, zipf

ABOUT_A_TAG = 0.5  # of the words belong to one of the text's tags: what a model can learn
MEAN_WORDS, MOST_WORDS = 21, 120  # a sentence and the title
MOST_TAGS = 5


@named("task", defaults=False)
def synthetic_tags(
    *,
    dtype: DTypeLike | None = None,
    clients: int = 1000,
    words: int = 10_000,
    tags: int = 500,
    examples_per_client: int = 1000,
    topics: int = 50,
    seed: int = 0,
) -> Task:
    """Made from `seed` in a few seconds. Validation and test are other clients, a tenth of `clients` each."""
    check_positive(clients=clients, words=words, tags=tags, examples_per_client=examples_per_client, topics=topics)
    make = partial(_clients, words=words, tags=tags, largest=examples_per_client, topics=topics)
    tenth = max(clients // 10, 1)
    return tag_task(
        name="synthetic_tags",
        words=[f"w{rank}" for rank in range(words)],
        tags=[f"t{rank}" for rank in range(tags)],
        train=make(np.random.default_rng([seed, 0]), clients, "train"),
        validation=make(np.random.default_rng([seed, 1]), tenth, "validation"),
        test=make(np.random.default_rng([seed, 2]), tenth, "test"),
        rounds=1500,
        recommended=STACKOVERFLOW_TAGS,
        source=f"made up from seed {seed}: Zipf-distributed words and tags, {topics} topics; not real text",
        dtype=compute_dtype(dtype),
    )


def _clients(
    generator: np.random.Generator, clients: int, prefix: str, *, words: int, tags: int, largest: int, topics: int
) -> ClientData:
    sizes = client_sizes(generator, clients, largest)
    topic = favourite_topics(generator, sizes, topics)
    tag_ids = _distinct_tags(generator, topic, tags, topics)
    tag_counts = np.diff(tag_ids.splits)
    word_counts = np.minimum(generator.geometric(1 / MEAN_WORDS, len(topic)), MOST_WORDS)
    text = np.repeat(np.arange(len(topic)), word_counts)
    about = tag_ids.values[tag_ids.splits[text] + generator.integers(tag_counts[text])].astype(np.int64)
    on_tag = generator.random(len(text)) < ABOUT_A_TAG
    word_ids = np.where(on_tag, of_topic(generator, about, words, tags), zipf(generator, len(text), words))
    return ClientData(
        {"words": _ragged(word_ids, word_counts, words), "tags": tag_ids},
        np.cumsum(sizes) - sizes,
        sizes,
        ClientIds.from_names(f"{prefix}_{client}" for client in range(clients)),
    )


def _distinct_tags(generator: np.random.Generator, topic: np.ndarray, tags: int, topics: int) -> Ragged:
    """One to five draws a text from its topic's tags; a tag drawn twice counts once."""
    text = np.repeat(np.arange(len(topic)), generator.integers(1, MOST_TAGS + 1, len(topic)))
    text, tag = np.divmod(np.unique(text * tags + of_topic(generator, topic[text], tags, topics)), tags)
    return _ragged(tag, np.bincount(text, minlength=len(topic)), tags)


def _ragged(values: np.ndarray, counts: np.ndarray, ids: int) -> Ragged:
    splits = np.concatenate([[0], np.cumsum(counts)])
    return Ragged(values.astype(np.min_scalar_type(ids - 1)), splits, int(counts.max()))
