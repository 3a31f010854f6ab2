"""Who takes part in a round. `sample(key, sizes, cohort)` returns client indices.

uniform   without replacement, everyone alike: weigh the updates by what the objective weighs clients by
by_size   with replacement, in proportion to size: the mean must then be uniform (the paper's Algorithm 1)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Sampling = Callable[[Any, Any, int], Any]


def uniform(key: Any, sizes: Any, cohort: int) -> Any:
    """`cohort` different clients; all of them, in order, when the cohort is everyone."""
    clients = sizes.shape[0]
    if cohort == clients:
        return jnp.arange(clients, dtype=jnp.int32)
    lots = jax.random.bits(key, (clients,), jnp.uint32)
    return jax.lax.top_k(lots, cohort)[1].astype(jnp.int32)


def by_size(key: Any, sizes: Any, cohort: int) -> Any:
    """`cohort` independent draws, client i with probability size_i / Σ size."""
    edges = jnp.cumsum(sizes.astype(_widest_float()))
    ticket = jax.random.uniform(key, (cohort,), edges.dtype) * edges[-1]
    drawn = jnp.searchsorted(edges, ticket, side="right")
    return jnp.minimum(drawn, sizes.shape[0] - 1).astype(jnp.int32)


def _widest_float() -> Any:
    return jnp.result_type(float)


SAMPLINGS: dict[str, Sampling] = {"uniform": uniform, "by_size": by_size}
