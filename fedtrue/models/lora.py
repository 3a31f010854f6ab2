"""LoRA (Hu et al. 2022): a matrix W is frozen, and a low-rank change of it is trained: W + (α/r) A B.

A is (m, r), normal with variance 1/m; B is (r, n) and starts at 0, so the first round starts from the model as it is.
An array with more than two axes is split between two of them into the matrix with the fewest adapter weights m + n:
a convolution (3, 3, 16, 32) is 144 × 32, an attention kernel (64, 4, 16) is 64 × 64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from fedtrue.models.model import matmul
from fedtrue.models.named_leaves import leaf_name, named_leaves
from fedtrue.models.trained_subset import Trainable, TrainedSubset, selected, subset_of, weight_shapes
from fedtrue.types import Array, Params, PyTree


@dataclass(frozen=True)
class Lora:
    """Which matrices get adapters, and of what rank. Made by `ft.tasks.lora`."""

    rank: int
    alpha: float
    on: Trainable | None
    also: Trainable | None


def lora(rank: int, alpha: float | None = None, *, on: Trainable | None = None, also: Trainable | None = None) -> Lora:
    """Train low-rank adapters and freeze the model: `ft.tasks.supervised(…, trainable=ft.tasks.lora(8))`.

    Args:
        rank: r, the number of columns of A.
        alpha: α; the change of a matrix is (α/r) A B. Without it α = r.
        on: which weights get adapters, selected by name as for `trainable`: a function of the name, or patterns such as
            "Dense_*/kernel". Arrays with fewer than two axes are left out. Without it: all matrices.
        also: weights to train as they are, besides the adapters; e.g. a new last layer.

    Returns:
        A value for the argument `trainable` of `ft.tasks.supervised`.

    >>> import fedtrue as ft
    >>> ft.tasks.lora(4, on="*/kernel", also="head")
    Lora(rank=4, alpha=4.0, on='*/kernel', also='head')
    """
    if rank < 1:
        raise ValueError(f"lora: rank is {rank}: choose at least 1")
    return Lora(rank, float(rank if alpha is None else alpha), on, also)


def lora_subset(init: Callable[[Array], PyTree], choice: Lora) -> TrainedSubset:
    """Trained are {"adapters": {name: {"a", "b"}}, "also": the tree with None in place of frozen leaves}."""
    shapes = weight_shapes(init)
    leaves = named_leaves(shapes)
    also = selected(shapes, choice.also) if choice.also is not None else set[str]()
    matrices = {
        name: matrix_shape(leaves[name].shape)
        for name in leaves
        if name in selected(shapes, choice.on) - also and len(leaves[name].shape) >= 2
    }
    _check_matrices(matrices, choice.rank)
    frozen, scale = subset_of(init, shapes, also), choice.alpha / choice.rank

    def init_adapters(key: Array) -> Params:
        keys = jax.random.split(jax.random.fold_in(key, 1), len(matrices))
        adapters = {}
        for own_key, (name, (m, n)) in zip(keys, matrices.items()):
            dtype = jnp.promote_types(leaves[name].dtype, jnp.float32)  # the frozen weights may be coarser
            a = jax.random.normal(own_key, (m, choice.rank), dtype) / math.sqrt(m)
            adapters[name] = {"a": a, "b": jnp.zeros((choice.rank, n), dtype)}
        return {"adapters": adapters, "also": frozen.init(key)}

    def complete(params: Params, others: PyTree = None) -> PyTree:
        if not (isinstance(params, dict) and set(params) == {"adapters", "also"}):
            return frozen.complete(params)
        adapters = params["adapters"]

        def adapted(path: tuple, leaf: Array) -> Array:
            if (name := leaf_name(path)) not in adapters:
                return leaf
            return leaf + (scale * matmul(**adapters[name])).reshape(leaf.shape).astype(leaf.dtype)

        return jax.tree_util.tree_map_with_path(adapted, frozen.complete(params["also"], others))

    return TrainedSubset(init_adapters, frozen.others, complete)


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """(m, n) of an array as a matrix.

    >>> matrix_shape((64, 4, 16)), matrix_shape((3, 3, 16, 32))
    ((64, 64), (144, 32))
    """
    splits = [(math.prod(shape[:axis]), math.prod(shape[axis:])) for axis in range(1, len(shape))]
    return min(splits, key=sum)


def _check_matrices(matrices: dict[str, tuple[int, int]], rank: int) -> None:
    if not matrices:
        raise ValueError("lora: no weights with two or more axes are selected: choose others with on=")
    for name, (m, n) in matrices.items():
        if rank >= min(m, n):
            raise ValueError(
                f"lora: rank {rank} is not below the smaller side of {name!r}, a {m} × {n} matrix: "
                "choose a smaller rank, or other weights with on="
            )
