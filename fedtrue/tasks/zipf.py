"""The distributions of the synthetic tasks: Zipf-distributed ids, clients of unequal size, topics."""

import numpy as np

MEAN_SIZE, MEDIAN_SIZE = (
    396.0,
    200.0,
)  # examples per client: Stack Overflow's mean, and a smaller median for a skewed distribution


def draw_zipf(generator: np.random.Generator, size: int | tuple[int, ...], ids: int) -> np.ndarray:
    """Ids 0 … ids − 1 with probability ∝ 1/(id + 1)."""
    cumulative = np.cumsum(1.0 / np.arange(1, ids + 1))
    drawn = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(drawn, ids - 1)


def draw_ids_of_topic(generator: np.random.Generator, topic: np.ndarray, ids: int, topics: int) -> np.ndarray:
    """One id per entry of `topic`; the ids of topic t are t, t + topics, t + 2·topics, …, Zipf-distributed."""
    per_topic = max(ids // topics, 1)
    return np.minimum(draw_zipf(generator, topic.shape, per_topic) * topics + topic, ids - 1)


def draw_client_sizes(generator: np.random.Generator, clients: int, largest: int) -> np.ndarray:
    """Log-normal with Stack Overflow's mean, clipped to 1 … `largest`."""
    spread = np.sqrt(2 * np.log(MEAN_SIZE / MEDIAN_SIZE))  # mean = median · exp(σ²/2)
    drawn = generator.lognormal(np.log(MEDIAN_SIZE), spread, clients)
    return np.clip(drawn.astype(np.int64), 1, largest)


def draw_topics(
    generator: np.random.Generator, sizes: np.ndarray, topics: int, topics_per_client: int = 3
) -> np.ndarray:
    """One topic per example; each client has its own few topics."""
    client_topics = generator.integers(topics, size=(len(sizes), topics_per_client))
    client = np.repeat(np.arange(len(sizes)), sizes)
    return client_topics[client, generator.integers(topics_per_client, size=len(client))]
