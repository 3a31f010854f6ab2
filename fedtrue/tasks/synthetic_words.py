"""A stand-in for Stack Overflow next-word prediction: its shapes, Zipf-distributed words, clients with topics."""

from functools import partial

import numpy as np
from jax.typing import DTypeLike

from fedtrue.data.client_data import ClientData, ClientIds
from fedtrue.data.text import PAD
from fedtrue.precision import compute_dtype
from fedtrue.spec import named
from fedtrue.tasks.next_token import next_word_task
from fedtrue.tasks.paper_rates import STACKOVERFLOW_WORDS
from fedtrue.tasks.task import Task, check_positive
from fedtrue.tasks.zipf import client_sizes, favourite_topics, of_topic, zipf

ON_TOPIC = 0.5  # of the words are about the example's topic,
FOLLOWING = 0.4  # and so many are the fixed successor of the word before them: what a model can learn
MEAN_WORDS = 13


@named("task", defaults=False)
def synthetic_words(
    *,
    dtype: DTypeLike | None = None,
    clients: int = 1000,
    vocabulary: int = 10_000,
    length: int = 20,
    examples_per_client: int = 128,
    topics: int = 50,
    seed: int = 0,
    embedding: int = 96,
    hidden: int = 670,
    projection: int = 96,
) -> Task:
    """Made from `seed` in about a second. Validation and test are other clients, a tenth of `clients` each."""
    check_positive(
        clients=clients, vocabulary=vocabulary, length=length, examples_per_client=examples_per_client, topics=topics
    )
    successor = np.random.default_rng(seed).permutation(vocabulary)
    make = partial(_clients, successor=successor, length=length, largest=examples_per_client, topics=topics)
    tenth = max(clients // 10, 1)
    return next_word_task(
        name="synthetic_words",
        words=[f"w{rank}" for rank in range(vocabulary)],
        train=make(np.random.default_rng([seed, 0]), clients, "train"),
        validation=make(np.random.default_rng([seed, 1]), tenth, "validation"),
        test=make(np.random.default_rng([seed, 2]), tenth, "test"),
        rounds=1500,
        recommended=STACKOVERFLOW_WORDS,
        source=f"made up from seed {seed}: Zipf-distributed words, {topics} topics; not real text",
        embedding=embedding,
        hidden=hidden,
        projection=projection,
        dtype=compute_dtype(dtype),
    )


def _clients(
    generator: np.random.Generator, clients: int, prefix: str, *, successor: np.ndarray, length: int, largest: int,
    topics: int,
) -> ClientData:  # fmt: skip
    sizes = client_sizes(generator, clients, largest)
    topic = favourite_topics(generator, sizes, topics)
    return ClientData(
        {"tokens": _sentences(generator, topic, successor, length, topics)},
        np.cumsum(sizes) - sizes,
        sizes,
        ClientIds.from_names(f"{prefix}_{client}" for client in range(clients)),
    )


def _sentences(
    generator: np.random.Generator, topic: np.ndarray, successor: np.ndarray, length: int, topics: int
) -> np.ndarray:
    """(sentences, length + 1) ids: begin, words, end if there is room, pads."""
    vocabulary, sentences = len(successor), len(topic)
    oov, bos, eos = vocabulary + 1, vocabulary + 2, vocabulary + 3
    words = np.zeros((sentences, length), np.int64)
    for place in range(length):
        # Drawn from twice the vocabulary, the rarer half unknown: 2 % of all words are.
        anything = zipf(generator, sentences, 2 * vocabulary)
        fresh = np.where(
            generator.random(sentences) < ON_TOPIC, of_topic(generator, topic, vocabulary, topics), anything
        )
        before = np.minimum(words[:, place - 1], vocabulary - 1)
        follows = (generator.random(sentences) < FOLLOWING) & (place > 0)
        words[:, place] = np.where(follows, successor[before], fresh)
    spoken = generator.geometric(1 / MEAN_WORDS, sentences)[:, None]
    places = np.arange(length)
    ids = np.where(words < vocabulary, words + 1, oov)
    ids = np.where(places < spoken, ids, np.where(places == spoken, eos, PAD))
    return np.concatenate([np.full((sentences, 1), bos), ids], axis=1).astype(np.min_scalar_type(eos))
