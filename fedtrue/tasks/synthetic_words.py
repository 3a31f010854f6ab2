"""A synthetic stand-in for Stack Overflow next-word prediction: same shapes, Zipf-distributed words, topics."""

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
from fedtrue.tasks.zipf import draw_client_sizes, draw_ids_of_topic, draw_topics, draw_zipf

TOPIC_FRACTION = 0.5  # of the words belong to the sentence's topic
SUCCESSOR_FRACTION = 0.4  # of the words are the fixed successor of the word before: this is what a model can learn
MEAN_WORDS = 13  # per sentence


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
    """A stand-in for `stackoverflow_words` that needs no data: synthetic sentences of the same shapes.

    Args:
        dtype: of matrix products, "float32" or "bfloat16"; by default float32 on CPUs, bfloat16 on accelerators.
        clients: number of train clients; validation and test have a tenth as many other clients each.
        vocabulary: number of words; others are unknown (OOV).
        length: words per sentence, at most.
        examples_per_client: sentences per client, at most.
        topics: number of topics; each client has three.
        seed: of the data.

    Returns:
        The task.
        embedding: width of the embedding.
        hidden: units of the LSTM.
        projection: width of the dense layer before the output.

    >>> task = synthetic_words(clients=20, vocabulary=50, length=6, examples_per_client=5)
    >>> len(task.train), len(task.test), task.train.columns["tokens"].shape[1]
    (20, 2, 7)
    """
    check_positive(
        clients=clients, vocabulary=vocabulary, length=length, examples_per_client=examples_per_client, topics=topics
    )
    successor = np.random.default_rng(seed).permutation(vocabulary)
    draw = partial(_draw_clients, successor=successor, length=length, largest=examples_per_client, topics=topics)
    tenth = max(clients // 10, 1)
    return next_word_task(
        name="synthetic_words",
        words=[f"w{rank}" for rank in range(vocabulary)],
        train=draw(np.random.default_rng([seed, 0]), clients, "train"),
        validation=draw(np.random.default_rng([seed, 1]), tenth, "validation"),
        test=draw(np.random.default_rng([seed, 2]), tenth, "test"),
        rounds=1500,
        recommended=STACKOVERFLOW_WORDS,
        source=f"synthetic, seed {seed}: Zipf-distributed words, {topics} topics; not real text",
        embedding=embedding,
        hidden=hidden,
        projection=projection,
        dtype=compute_dtype(dtype),
    )


def _draw_clients(
    generator: np.random.Generator, clients: int, prefix: str, *, successor: np.ndarray, length: int, largest: int,
    topics: int,
) -> ClientData:  # fmt: skip
    sizes = draw_client_sizes(generator, clients, largest)
    topic = draw_topics(generator, sizes, topics)
    return ClientData(
        {"tokens": _draw_sentences(generator, topic, successor, length, topics)},
        np.cumsum(sizes) - sizes,
        sizes,
        ClientIds.from_names(f"{prefix}_{client}" for client in range(clients)),
    )


def _draw_sentences(
    generator: np.random.Generator, topic: np.ndarray, successor: np.ndarray, length: int, topics: int
) -> np.ndarray:
    """(sentences, length + 1) ids: begin, words, end if it fits, padding."""
    vocabulary, sentences = len(successor), len(topic)
    oov, bos, eos = vocabulary + 1, vocabulary + 2, vocabulary + 3
    words = np.zeros((sentences, length), np.int64)
    for position in range(length):
        # From twice the vocabulary, the rarer half unknown: 2 % of all words.
        anything = draw_zipf(generator, sentences, 2 * vocabulary)
        fresh = np.where(
            generator.random(sentences) < TOPIC_FRACTION,
            draw_ids_of_topic(generator, topic, vocabulary, topics),
            anything,
        )
        before = np.minimum(words[:, position - 1], vocabulary - 1)
        follows = (generator.random(sentences) < SUCCESSOR_FRACTION) & (position > 0)
        words[:, position] = np.where(follows, successor[before], fresh)
    lengths = generator.geometric(1 / MEAN_WORDS, sentences)[:, None]
    positions = np.arange(length)
    ids = np.where(words < vocabulary, words + 1, oov)
    ids = np.where(positions < lengths, ids, np.where(positions == lengths, eos, PAD))
    return np.concatenate([np.full((sentences, 1), bos), ids], axis=1).astype(np.min_scalar_type(eos))
