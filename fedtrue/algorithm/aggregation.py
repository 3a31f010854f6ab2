"""Weighted sums of client outputs: all the server ever sees, so that secure aggregation stays possible."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm.client_update import ClientOutput


class WeightedSums(NamedTuple):
    """Sums over clients. Adding two of them, leaf by leaf, is the union of their clients."""

    contribution: Any  # Σ w_i contribution_i
    weight: Any  # Σ w_i
    sums: Any  # metric sums, unweighted
    clients: Any  # how many were summed
    dropped: Any  # how many were not finite


def weigh(output: ClientOutput, weight: Any, present: Any = True) -> WeightedSums:
    """One client's part of the sums: nothing at all if it is absent, only counted if it is not finite."""
    kept = present & output.finite
    w = jnp.where(kept, weight, 0)

    def scaled(leaf: Any) -> Any:
        return jnp.where(kept, leaf * w.astype(leaf.dtype), 0)  # where, not a product: 0 · ∞ is NaN

    return WeightedSums(
        jax.tree.map(scaled, output.contribution),
        w,
        jax.tree.map(lambda leaf: jnp.where(kept, leaf, 0), output.sums),
        kept.astype(jnp.int32),
        (present & ~output.finite).astype(jnp.int32),
    )


def total(weighted: WeightedSums) -> WeightedSums:
    """The sum over a leading axis of clients."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), weighted)


def mean(sums: WeightedSums) -> Any:
    """Σ w_i contribution_i / Σ w_i, and 0 when nobody is left."""
    weight = jnp.where(sums.weight == 0, 1, sums.weight)
    return jax.tree.map(lambda leaf: leaf / weight.astype(leaf.dtype), sums.contribution)
