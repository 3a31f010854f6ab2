"""Logistic regression, and bags of words made on the device."""

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from fedtrue.models.model import Model, dense, init_dense


def logistic_regression(features: int, classes: int, dtype: DTypeLike = jnp.float32) -> Model:
    """Features (batch, features) → logits (batch, classes): one Dense layer, Glorot-uniform, bias 0.

    Texts come as word ids: `apply(params, bag_of_words(word_ids, features))`.
    """
    return Model(lambda key: init_dense(key, features, classes), lambda params, inputs: dense(params, inputs, dtype))


def bag_of_words(word_ids: Array, features: int, fill: int = -1, counts: Array | None = None) -> Array:
    """How large a part of each text each word is: (batch, width) ids → (batch, features), rows that sum to 1.

        bag[b, w] = n_bw / Σ_v n_bv,   n_bw = Σ_j counts[b, j]·[word_ids[b, j] = w]

    `counts` are whole numbers, 1 unless given. Ids equal to `fill`, negative, or not below `features` count nothing,
    and a text without words is all 0. Whole numbers add up exactly in float32 in any order, so this scatter-add is
    the same every time; dividing before it would not be.
    """
    counted = jnp.ones(word_ids.shape, jnp.float32) if counts is None else counts.astype(jnp.float32)
    word_ids = word_ids.astype(jnp.int32)  # stored as uint16, where −1 would be a word
    column = jnp.where((word_ids == fill) | (word_ids < 0), features, word_ids)
    row = jnp.arange(word_ids.shape[0])[:, None]
    bag = jnp.zeros((word_ids.shape[0], features), jnp.float32).at[row, column].add(counted, mode="drop")
    return bag / jnp.maximum(bag.sum(axis=1, keepdims=True), 1)
