"""One network, two dense layers with dropout between them, in every library that `supervised` takes."""

from typing import NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

INPUTS, HIDDEN, CLASSES = 6, 5, 3
RNG = np.random.default_rng(0)
WEIGHTS = {  # the same start for all of them
    "w1": RNG.normal(size=(INPUTS, HIDDEN)).astype(np.float32),
    "b1": RNG.normal(size=HIDDEN).astype(np.float32),
    "w2": RNG.normal(size=(HIDDEN, CLASSES)).astype(np.float32),
    "b2": RNG.normal(size=CLASSES).astype(np.float32),
}


def by_hand(weights, x):
    """The network without dropout."""
    return jax.nn.relu(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


class Linen(nn.Module):
    rate: float = 0.0

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Dropout(self.rate, deterministic=not train)(nn.relu(nn.Dense(HIDDEN)(x)))
        return nn.Dense(CLASSES)(x)


class LinenByField(nn.Module):
    rate: float = 0.0
    deterministic: bool = True

    @nn.compact
    def __call__(self, x):
        x = nn.Dropout(self.rate, deterministic=self.deterministic)(nn.relu(nn.Dense(HIDDEN)(x)))
        return nn.Dense(CLASSES)(x)


class Nnx(nnx.Module):
    def __init__(self, rate=0.0, seed=0):
        rngs = nnx.Rngs(seed)
        self.first, self.last = nnx.Linear(INPUTS, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, CLASSES, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.first(x))))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    last: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    activation: callable  # a leaf that is no array

    def __init__(self, rate=0.0, seed=0):
        first, last = jax.random.split(jax.random.key(seed))
        self.first = eqx.nn.Linear(INPUTS, HIDDEN, key=first)
        self.last = eqx.nn.Linear(HIDDEN, CLASSES, key=last)
        self.dropout, self.activation = eqx.nn.Dropout(rate), jax.nn.relu

    def __call__(self, x, key=None):
        return self.last(self.dropout(self.activation(self.first(x)), key=key))


def haiku(rate=0.0):
    def network(x, is_training):
        x = jax.nn.relu(hk.Linear(HIDDEN, name="first")(x))
        x = hk.dropout(hk.next_rng_key(), rate, x) if is_training and rate else x
        return hk.Linear(CLASSES, name="last")(x)

    return hk.transform(network)


def pair(rate=0.0):
    def apply(weights, x, key):
        hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
        if key is not None and rate:
            hidden = hidden * jax.random.bernoulli(key, 1 - rate, hidden.shape) / (1 - rate)
        return hidden @ weights["w2"] + weights["b2"]

    return lambda key: jax.tree.map(jnp.asarray, WEIGHTS), apply


class Framework(NamedTuple):
    model: callable  # (dropout rate) → a model
    names: dict  # w1, b1, w2, b2 → the names of these weights
    transposed: bool = False  # equinox's matrices are (outputs, inputs)

    def arrays(self, weights):
        """{w1: …} as {name of this library: …}."""
        return {name: weights[short].T if self.transposed else weights[short] for short, name in self.names.items()}


def _names(first, last, matrix, bias):
    return {"w1": f"{first}/{matrix}", "b1": f"{first}/{bias}", "w2": f"{last}/{matrix}", "b2": f"{last}/{bias}"}


FRAMEWORKS = {
    "linen": Framework(Linen, _names("Dense_0", "Dense_1", "kernel", "bias")),
    "linen by field": Framework(LinenByField, _names("Dense_0", "Dense_1", "kernel", "bias")),
    "nnx": Framework(Nnx, _names("first", "last", "kernel", "bias")),
    "equinox": Framework(Equinox, _names("first", "last", "weight", "bias"), transposed=True),
    "haiku": Framework(haiku, _names("first", "last", "w", "b")),
    "pair": Framework(pair, {name: name for name in WEIGHTS}),
}
HOLDING = {"nnx": Nnx, "equinox": Equinox}  # those whose modules hold their weights
