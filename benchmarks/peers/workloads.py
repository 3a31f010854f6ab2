"""Four synthetic federations, identical for every framework and on every machine. NumPy only.

    workload = Workload("cnn")       # or "shakespeare", "tags", "pooled"
    workload.cohort(3)               # the clients of round 3
    workload.client(7)               # (x, y) of client 7, in the order it trains on them
    workload.weights()               # the initial weights

A client makes one pass over its examples in their order; its last batch may be short. The loss is the mean over the
examples of a batch: for `shakespeare` of the mean over 80 tokens, for `tags` of the sum over 500 tags. The server takes
the mean of the clients' weights, weighted by examples.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

TOKENS, SEQUENCE, EMBEDDING, HIDDEN = 90, 80, 8, 256  # shakespeare
WORDS, TAGS, WORDS_PER_TEXT, TAGS_PER_TEXT = 10_000, 500, 40, 3  # tags
CLASSES, SIDE = 62, 28  # cnn, pooled
FEATURE_MAPS = {"cnn": (12, 12, 64), "pooled": (7, 7, 64)}  # after the last pooling

Arrays = dict[str, np.ndarray]
Uniform = Callable[..., np.ndarray]


class Size(NamedTuple):
    """The size of a workload."""

    clients: int
    cohort: int
    max_batches: int  # per client


FULL = Size(clients=200, cohort=10, max_batches=100)
SMALL = Size(clients=12, cohort=4, max_batches=2)  # to check correctness, not to measure time


class Kind(NamedTuple):
    """The parts of a workload."""

    batch_size: int
    learning_rate: float
    mean_examples: float  # per client; log-normal, with this spread
    spread: float
    max_examples: int
    common: Callable[[np.random.Generator], np.ndarray]  # shared by all clients
    examples: Callable[[np.random.Generator, np.ndarray, int], Any]  # (rng, common, count) → stored form
    load: Callable[[Any], tuple[np.ndarray, np.ndarray]]  # stored → (x, y)
    weights: Callable[[Uniform], Arrays]


class Workload:
    """One of KINDS at a given size; `stored` has one entry per client."""

    def __init__(self, name: str, size: Size = FULL):
        self.name, self.size, self.kind = name, size, KINDS[name]
        self.batch_size, self.learning_rate = self.kind.batch_size, self.kind.learning_rate
        rng = np.random.default_rng(1)
        centre = np.log(self.kind.mean_examples) - self.kind.spread**2 / 2
        wanted = np.round(rng.lognormal(centre, self.kind.spread, size.clients))
        most = min(self.kind.max_examples, size.max_batches * self.batch_size - 1)
        self.examples = np.clip(wanted, 1, most).astype(int)  # per client
        common = self.kind.common(rng)
        self.stored = [
            self.kind.examples(np.random.default_rng((2, client)), common, count)
            for client, count in enumerate(self.examples)
        ]

    def cohort(self, round_index: int) -> list[int]:
        rng = np.random.default_rng(round_index)
        return rng.choice(self.size.clients, self.size.cohort, replace=False).tolist()

    def cohort_examples(self, round_index: int) -> int:
        return int(self.examples[self.cohort(round_index)].sum())

    def client(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.kind.load(self.stored[index])

    def weights(self) -> Arrays:
        """Gate order i, f, g, o; kernels (height, width, in, out) and (in, out)."""
        rng = np.random.default_rng(3)
        uniform = lambda *shape, fan: rng.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(fan))
        return self.kind.weights(uniform)


def padded_batches(x: np.ndarray, y: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(x, y, mask) of full batch size: the mask is 0 on the padding of a short last batch."""
    for first in range(0, len(x), size):
        real = min(size, len(x) - first)
        filled = [
            np.concatenate([a[first : first + real], np.zeros((size - real, *a.shape[1:]), a.dtype)]) for a in (x, y)
        ]
        yield filled[0], filled[1], (np.arange(size) < real).astype(np.float32)


# --- shakespeare: a Markov chain with three likely successors per token ---------------------------------------------


def _sequences(rng: np.random.Generator, successors: np.ndarray, count: int) -> np.ndarray:
    tokens = np.empty((count, SEQUENCE + 1), np.uint8)
    tokens[:, 0] = rng.integers(0, TOKENS, count)
    likely, surprise = rng.integers(0, 3, (count, SEQUENCE)), rng.integers(0, TOKENS, (count, SEQUENCE))
    as_expected = rng.random((count, SEQUENCE)) < 0.8
    for t in range(SEQUENCE):
        following = successors[tokens[:, t], likely[:, t]]
        tokens[:, t + 1] = np.where(as_expected[:, t], following, surprise[:, t])
    return tokens


def _load_sequences(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens = tokens.astype(np.int32)
    return tokens[:, :-1], tokens[:, 1:]


def _language_model(uniform: Uniform) -> Arrays:
    weights = {"embedding": uniform(TOKENS, EMBEDDING, fan=1)}
    for layer, inputs in enumerate((EMBEDDING, HIDDEN)):
        weights[f"input_{layer}"] = uniform(inputs, 4 * HIDDEN, fan=HIDDEN)
        weights[f"recurrent_{layer}"] = uniform(HIDDEN, 4 * HIDDEN, fan=HIDDEN)
        weights[f"bias_{layer}"] = np.repeat(np.float32([0, 1, 0, 0]), HIDDEN)
    output = {"output": uniform(HIDDEN, TOKENS, fan=HIDDEN), "output_bias": np.zeros(TOKENS, np.float32)}
    return weights | output


# --- tags: Zipf-distributed words, stored as ids and converted to dense bags when a client is loaded ----------------


def _zipf(_: np.random.Generator) -> np.ndarray:
    frequency = 1 / np.arange(1, WORDS + 1)
    return np.cumsum(frequency / frequency.sum())


def _texts(rng: np.random.Generator, cumulative: np.ndarray, count: int) -> np.ndarray:
    words = np.searchsorted(cumulative, rng.random((count, WORDS_PER_TEXT)))
    return words.clip(0, WORDS - 1).astype(np.uint16)


def tags_of(texts: np.ndarray) -> np.ndarray:
    """The first words of a text determine its tags."""
    return texts[:, :TAGS_PER_TEXT] % TAGS


def _load_texts(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    row = np.arange(len(texts))[:, None]
    bags = np.zeros((len(texts), WORDS), np.float32)
    np.add.at(bags, (row, texts.astype(np.int64)), np.float32(1 / WORDS_PER_TEXT))
    labels = np.zeros((len(texts), TAGS), np.float32)
    labels[row, tags_of(texts).astype(np.int64)] = 1
    return bags, labels


def _logistic_regression(uniform: Uniform) -> Arrays:
    return {"kernel": uniform(WORDS, TAGS, fan=WORDS), "bias": np.zeros(TAGS, np.float32)}


# --- cnn, pooled: one noisy template per class ----------------------------------------------------------------------


def _templates(rng: np.random.Generator) -> np.ndarray:
    return rng.random((CLASSES, SIDE, SIDE, 1), np.float32)


def _images(rng: np.random.Generator, templates: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(0, CLASSES, count)
    images = templates[labels] + rng.normal(0, 0.3, (count, SIDE, SIDE, 1))
    return images.astype(np.float32), labels.astype(np.int32)


def _cnn(name: str, uniform: Uniform) -> Arrays:
    """Two convolutions and two dense layers. `cnn` pools once, without padding; `pooled` after each, with padding."""
    features = int(np.prod(FEATURE_MAPS[name]))
    return {
        "conv_0": uniform(3, 3, 1, 32, fan=9),
        "conv_0_bias": np.zeros(32, np.float32),
        "conv_1": uniform(3, 3, 32, 64, fan=288),
        "conv_1_bias": np.zeros(64, np.float32),
        "dense_0": uniform(features, 128, fan=features),
        "dense_0_bias": np.zeros(128, np.float32),
        "dense_1": uniform(128, CLASSES, fan=128),
        "dense_1_bias": np.zeros(CLASSES, np.float32),
    }


KINDS = {
    "shakespeare": Kind(
        4, 0.3, 22, 1.0, 200, lambda rng: rng.integers(0, TOKENS, (TOKENS, 3)), _sequences, _load_sequences,
        _language_model,
    ),
    "tags": Kind(100, 1.0, 150, 0.8, 500, _zipf, _texts, _load_texts, _logistic_regression),
    **{
        name: Kind(20, 10**-1.5, 100, 0.5, 350, _templates, _images, lambda stored: stored, partial(_cnn, name))
        for name in FEATURE_MAPS
    },
}  # fmt: skip
