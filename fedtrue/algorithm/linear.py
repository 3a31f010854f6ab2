"""Preconditioners and traces as linear maps: diagonal (an array in the shape of the weights), `OneSided` or `Dense`.

A tree of maps has one map per leaf of the weights. The number 1 in a leaf's place stands for the identity, so
`apply(P, 1)` is P itself: that is how the exact trace feeds "ones" to a move without spending memory on them.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

# accelerators multiply in bfloat16 or TF32 by default, which loses the small eigenvalues of a preconditioner
_product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """A full matrix acting on a weight vector, or on the entries of a weight array in their stored order."""

    matrix: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneSided:
    """X → X P (on the right) or P X (on the left); X is a weight array, seen as a matrix by `as_matrix`."""

    matrix: jax.Array
    side: str = field(metadata={"static": True})


def as_matrix(x: Any) -> Any:
    """A weight array of two or more axes as a matrix: all axes but the last are its rows.

    >>> as_matrix(jnp.zeros((3, 3, 8, 16))).shape  # a convolution's kernel: (height · width · inputs, outputs)
    (72, 16)
    """
    return x.reshape(-1, x.shape[-1])


def smaller_side(x: Any) -> tuple[str, int]:
    """Which side of the matrix is the smaller one, and its size; "right" (the columns) if it is square.

    >>> smaller_side(jnp.zeros((3, 2))), smaller_side(jnp.zeros((2, 3)))
    (('right', 2), ('left', 2))
    """
    rows, columns = math.prod(x.shape[:-1]), x.shape[-1]
    return ("right", columns) if rows >= columns else ("left", rows)


def gram(x: Any, side: str) -> Any:
    """Xᵀ X (right) or X Xᵀ (left), at least in float32."""
    x = as_matrix(x)
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return _product(x.T, x) if side == "right" else _product(x, x.T)


def is_matrix_map(node: Any) -> bool:
    """Whether a map has a matrix, so is not diagonal."""
    return isinstance(node, Dense | OneSided)


def _like(p: Any, matrix: Any) -> Any:
    """A map of the same kind with another matrix."""
    return OneSided(matrix, p.side) if isinstance(p, OneSided) else Dense(matrix)


def apply(maps: Any, vectors: Any) -> Any:
    """P x, leaf by leaf; a scalar stands for a multiple of I, and if x is a map the result is again a map."""

    def apply_leaf(p: Any, x: Any) -> Any:
        if not is_matrix_map(p):
            return _like(x, p * x.matrix) if is_matrix_map(x) else p * x
        if is_matrix_map(x):  # first x, then P: Z ↦ (Z X) P on the right, P (X Z) on the left
            on_the_right = isinstance(p, OneSided) and p.side == "right"
            return _like(p, _product(x.matrix, p.matrix) if on_the_right else _product(p.matrix, x.matrix))
        return _like(p, p.matrix * x) if jnp.ndim(x) == 0 else _applied(p, x)

    return jax.tree.map(apply_leaf, maps, vectors, is_leaf=is_matrix_map)


def _applied(p: Any, x: Any) -> Any:
    """P x of a weight array x, in its shape and dtype."""
    if isinstance(p, Dense):
        return _product(p.matrix, x.reshape(-1)).reshape(x.shape).astype(x.dtype)
    moved = _product(as_matrix(x), p.matrix) if p.side == "right" else _product(p.matrix, as_matrix(x))
    return moved.reshape(x.shape).astype(x.dtype)


def inverse(maps: Any) -> Any:
    """1/N, leaf by leaf; where N is 0 (no step taken, nothing moved) the inverse is 0, never NaN.

    For a matrix that is the pseudo-inverse: 0 in the directions in which nothing moved.
    """

    def inverse_leaf(n: Any) -> Any:
        if is_matrix_map(n):
            return _like(n, jnp.linalg.pinv(n.matrix, rtol=jnp.finfo(n.matrix.dtype).eps))
        return jnp.where(n == 0, 0.0, 1.0 / jnp.where(n == 0, 1.0, n))

    return jax.tree.map(inverse_leaf, maps, is_leaf=is_matrix_map)


def identity_like(tree: Any) -> Any:
    """The number 1 for every leaf of a tree of vectors or maps: the identity, and the "ones" of the exact trace."""

    def one(leaf: Any) -> Any:
        return jnp.ones((), (leaf.matrix if is_matrix_map(leaf) else leaf).dtype)

    return jax.tree.map(one, tree, is_leaf=is_matrix_map)


def as_maps(factors: Any, like: Any) -> Any:
    """Numbers or arrays as diagonal maps that may be composed with the maps `like`."""

    def leaf(p: Any, c: Any) -> Any:
        if not is_matrix_map(p) or not jnp.ndim(c):
            return c
        if isinstance(p, OneSided) or jnp.ndim(c) > 1:
            raise ValueError(
                "clip_value has a factor per entry, which no trace of a preconditioner per weight matrix can hold: "
                'use clip_norm, or correction="none"'
            )
        return Dense(jnp.diag(c))

    return jax.tree.map(leaf, like, factors, is_leaf=is_matrix_map)


def accumulated(kept: Any, total: Any, factor: Any, step: Any) -> Any:
    """a N + s step, leaf by leaf; None stands for 1."""
    times = lambda number, leaf: leaf if number is None else (number * leaf).astype(leaf.dtype)
    return jax.tree.map(lambda n, s: times(kept, n) + times(factor, s), total, step)


def identity_minus(factor: Any, maps: Any) -> Any:
    """I − factor · N, leaf by leaf."""

    def leaf(n: Any) -> Any:
        if is_matrix_map(n):
            return _like(
                n, jnp.eye(n.matrix.shape[-1], dtype=n.matrix.dtype) - (factor * n.matrix).astype(n.matrix.dtype)
            )
        return 1 - (factor * n).astype(n.dtype)

    return jax.tree.map(leaf, maps, is_leaf=is_matrix_map)


def where(conditions: Any, maps: Any, others: Any) -> Any:
    """`maps` where the condition is true, else `others`: per weight, or per matrix if any of its weights has it."""

    def leaf(n: Any, condition: Any, other: Any) -> Any:
        if is_matrix_map(n):
            return _like(n, jnp.where(jnp.any(condition), n.matrix, other.matrix))
        return jnp.where(condition, n, other)

    return jax.tree.map(leaf, maps, conditions, others, is_leaf=is_matrix_map)
