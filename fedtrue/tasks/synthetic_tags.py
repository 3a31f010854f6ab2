"""A synthetic stand-in for Stack Overflow tag prediction: same shapes, Zipf-distributed words and tags, topics."""

from functools import partial

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data.client_data import ClientData, ClientIds, Ragged
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.paper_rates import STACKOVERFLOW_TAGS
from fedtrue.tasks.tag_prediction import tag_task
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.zipf import draw_client_sizes, draw_ids_of_topic, draw_topics, draw_zipf

TAG_WORD_FRACTION = 0.5  # of the words belong to one of the text's tags: this is what a model can learn
MEAN_WORDS, MAX_WORDS = 21, 120  # per text: a sentence and the title
MAX_TAGS = 5  # per text


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
    """A stand-in for `stackoverflow_tags` that needs no data: synthetic texts of the same shapes.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        clients: number of train clients; validation and test have a tenth as many other clients each.
        words: size of the vocabulary.
        tags: number of tags.
        examples_per_client: texts per client, at most.
        topics: number of topics; each client has three.
        seed: of the data.

    Returns:
        The task.

    >>> task = synthetic_tags(clients=20, words=50, tags=8, examples_per_client=5)
    >>> len(task.train), len(task.test), int(task.train.sizes.max())
    (20, 2, 5)
    """
    check_positive(clients=clients, words=words, tags=tags, examples_per_client=examples_per_client, topics=topics)
    draw = partial(_draw_clients, words=words, tags=tags, largest=examples_per_client, topics=topics)
    tenth = max(clients // 10, 1)
    return tag_task(
        name="synthetic_tags",
        words=[f"w{rank}" for rank in range(words)],
        tags=[f"t{rank}" for rank in range(tags)],
        train=draw(np.random.default_rng([seed, 0]), clients, "train"),
        validation=draw(np.random.default_rng([seed, 1]), tenth, "validation"),
        test=draw(np.random.default_rng([seed, 2]), tenth, "test"),
        rounds=1500,
        recommended=STACKOVERFLOW_TAGS,
        source=f"synthetic, seed {seed}: Zipf-distributed words and tags, {topics} topics; not real text",
        dtype=compute_dtype(dtype),
    )


def _draw_clients(
    generator: np.random.Generator, clients: int, prefix: str, *, words: int, tags: int, largest: int, topics: int
) -> ClientData:
    sizes = draw_client_sizes(generator, clients, largest)
    topic = draw_topics(generator, sizes, topics)
    tag_ids = _draw_distinct_tags(generator, topic, tags, topics)
    tag_counts = np.diff(tag_ids.splits)
    word_counts = np.minimum(generator.geometric(1 / MEAN_WORDS, len(topic)), MAX_WORDS)
    text = np.repeat(np.arange(len(topic)), word_counts)
    about = tag_ids.values[tag_ids.splits[text] + generator.integers(tag_counts[text])].astype(np.int64)
    on_tag = generator.random(len(text)) < TAG_WORD_FRACTION
    word_ids = np.where(
        on_tag, draw_ids_of_topic(generator, about, words, tags), draw_zipf(generator, len(text), words)
    )
    return ClientData(
        {"words": _to_ragged(word_ids, word_counts, words), "tags": tag_ids},
        np.cumsum(sizes) - sizes,
        sizes,
        ClientIds.from_names(f"{prefix}_{client}" for client in range(clients)),
    )


def _draw_distinct_tags(generator: np.random.Generator, topic: np.ndarray, tags: int, topics: int) -> Ragged:
    """Draw one to five tags per text from the tags of its topic; a tag drawn twice counts once."""
    text = np.repeat(np.arange(len(topic)), generator.integers(1, MAX_TAGS + 1, len(topic)))
    text, tag = np.divmod(np.unique(text * tags + draw_ids_of_topic(generator, topic[text], tags, topics)), tags)
    return _to_ragged(tag, np.bincount(text, minlength=len(topic)), tags)


def _to_ragged(values: np.ndarray, counts: np.ndarray, ids: int) -> Ragged:
    splits = np.concatenate([[0], np.cumsum(counts)])
    return Ragged(values.astype(np.min_scalar_type(ids - 1)), splits, int(counts.max()))
