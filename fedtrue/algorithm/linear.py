"""Preconditioners and traces as linear maps: diagonal (an array in the shape of the weights) or `Dense`.

A tree of maps has one map per leaf of the weights. The number 1 in a leaf's place stands for the identity, so
`apply(P, 1)` is P itself: that is how the exact trace feeds "ones" to a move without spending memory on them.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """A full matrix acting on a weight vector."""

    matrix: jax.Array


def _is_map(node: Any) -> bool:
    return isinstance(node, Dense)


def apply(maps: Any, vectors: Any) -> Any:
    """P x, leaf by leaf; a scalar stands for a multiple of I, and if x is a map the result is again a map."""

    def apply_leaf(p: Any, x: Any) -> Any:
        if not isinstance(p, Dense):
            return Dense(p * x.matrix) if isinstance(x, Dense) else p * x
        if isinstance(x, Dense):
            return Dense(p.matrix @ x.matrix)
        return Dense(p.matrix * x) if jnp.ndim(x) == 0 else p.matrix @ x

    return jax.tree.map(apply_leaf, maps, vectors, is_leaf=_is_map)


def inverse(maps: Any) -> Any:
    """1/N, leaf by leaf; where N is 0 (no step taken, nothing moved) the inverse is 0, never NaN."""

    def inverse_leaf(n: Any) -> Any:
        if isinstance(n, Dense):
            moved = jnp.any(n.matrix != 0)
            safe = jnp.where(moved, n.matrix, jnp.eye(n.matrix.shape[-1], dtype=n.matrix.dtype))
            return Dense(jnp.where(moved, jnp.linalg.inv(safe), 0.0))
        return jnp.where(n == 0, 0.0, 1.0 / jnp.where(n == 0, 1.0, n))

    return jax.tree.map(inverse_leaf, maps, is_leaf=_is_map)


def identity_like(tree: Any) -> Any:
    """The number 1 for every leaf of a tree of vectors or maps: the identity, and the "ones" of the exact trace."""

    def one(leaf: Any) -> Any:
        return jnp.ones((), (leaf.matrix if isinstance(leaf, Dense) else leaf).dtype)

    return jax.tree.map(one, tree, is_leaf=_is_map)


def as_maps(factors: Any, like: Any) -> Any:
    """Numbers or arrays as diagonal maps that may be composed with the maps `like`."""

    def leaf(p: Any, c: Any) -> Any:
        return Dense(jnp.diag(c)) if isinstance(p, Dense) and jnp.ndim(c) else c

    return jax.tree.map(leaf, like, factors, is_leaf=_is_map)


def accumulated(kept: Any, total: Any, factor: Any, step: Any) -> Any:
    """a N + s step, leaf by leaf; None stands for 1."""
    times = lambda number, leaf: leaf if number is None else (number * leaf).astype(leaf.dtype)
    return jax.tree.map(lambda n, s: times(kept, n) + times(factor, s), total, step)


def identity_minus(factor: Any, maps: Any) -> Any:
    """I − factor · N, leaf by leaf."""

    def leaf(n: Any) -> Any:
        if isinstance(n, Dense):
            return Dense(jnp.eye(n.matrix.shape[-1], dtype=n.matrix.dtype) - factor * n.matrix)
        return 1 - (factor * n).astype(n.dtype)

    return jax.tree.map(leaf, maps, is_leaf=_is_map)
