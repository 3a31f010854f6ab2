"""What the synthetic tasks are drawn from: Zipf-distributed ids, clients of unequal size, topics."""

import numpy as np

MEAN_SIZE, MEDIAN_SIZE = 396.0, 200.0  # examples a client: Stack Overflow's mean, and a median that makes it skewed


def zipf(generator: np.random.Generator, size: int | tuple[int, ...], ids: int) -> np.ndarray:
    """Ids 0 … ids − 1 with probability ∝ 1/(id + 1)."""
    cumulative = np.cumsum(1.0 / np.arange(1, ids + 1))
    drawn = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.minimum(drawn, ids - 1)


def of_topic(generator: np.random.Generator, topic: np.ndarray, ids: int, topics: int) -> np.ndarray:
    """One id for each entry of `topic`: those of topic t are t, t + topics, t + 2·topics, …, again by Zipf."""
    per_topic = max(ids // topics, 1)
    return np.minimum(zipf(generator, topic.shape, per_topic) * topics + topic, ids - 1)


def client_sizes(generator: np.random.Generator, clients: int, largest: int) -> np.ndarray:
    """Log-normal with Stack Overflow's mean, cut off at `largest`, at least 1."""
    spread = np.sqrt(2 * np.log(MEAN_SIZE / MEDIAN_SIZE))  # mean = median · exp(σ²/2)
    drawn = generator.lognormal(np.log(MEDIAN_SIZE), spread, clients)
    return np.clip(drawn.astype(np.int64), 1, largest)


def favourite_topics(generator: np.random.Generator, sizes: np.ndarray, topics: int, favourites: int = 3) -> np.ndarray:
    """A topic for every example: each client writes about a few of its own."""
    own = generator.integers(topics, size=(len(sizes), favourites))
    client = np.repeat(np.arange(len(sizes)), sizes)
    return own[client, generator.integers(favourites, size=len(client))]
