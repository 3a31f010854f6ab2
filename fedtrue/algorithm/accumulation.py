"""Gradient accumulation: the gradient of a large batch from those of its parts, one part in memory at a time.

A mean over all examples weighs each part by what its own mean is over, examples or tokens:  g = Σ n_j g_j / Σ n_j.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.types import Batch, Params, PyTree


def accumulated_gradient(
    gradient_of: Callable[[Params, Batch], tuple[Any, PyTree]], params: Params, batch: Batch, parts: int, summed: bool
) -> tuple[Any, PyTree]:
    """((loss, metric sums), gradient) of the whole batch; `summed`: the loss is a sum over the examples, not a mean."""
    split = split_batch(batch, parts)
    part = jax.tree.map(lambda leaf: leaf[0], split)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(gradient_of, params, part))

    def add(totals: Any, part: Batch) -> tuple[Any, None]:
        (total, sums, gradient), weights = totals
        (value, more), g = gradient_of(params, part)
        weight = jnp.asarray(1 if summed else _examples(part, more), weights.dtype)
        added = lambda old, new: old + jnp.where(weight > 0, weight * new, 0).astype(old.dtype)
        totals = added(total, value), jax.tree.map(jnp.add, sums, more), jax.tree.map(added, gradient, g)
        return (totals, weights + weight), None

    (value, no_sums), no_gradient = nothing
    ((value, sums, gradient), weights), _ = jax.lax.scan(add, ((value, no_sums, no_gradient), jnp.zeros(())), split)
    divide = lambda leaf: leaf if summed else (leaf / jnp.maximum(weights, 1)).astype(leaf.dtype)
    return (divide(value), sums), jax.tree.map(divide, gradient)


def split_batch(batch: Batch, parts: int) -> dict[str, Any]:
    """The parts, stacked along a first axis; each has its own key."""
    own = {name: column for name, column in batch.items() if name != "key"}
    split = jax.tree.map(lambda leaf: leaf.reshape(parts, leaf.shape[0] // parts, *leaf.shape[1:]), own)
    return {**split, "key": jax.random.split(batch["key"], parts)}


def _examples(part: Batch, sums: Any) -> Any:
    """What the loss of a part is a mean over: the count of its metric `loss`, else its examples."""
    return sums["loss"][1] if "loss" in sums else jnp.sum(part["mask"])
