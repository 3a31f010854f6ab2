"""Who takes part in a round.

uniform   without replacement, every client alike: weigh the updates by what the objective weighs clients by
by_size   with replacement, in proportion to size: the mean must then be uniform (the paper's Algorithm 1)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.spec import FACTORIES, Part, accepts, named

TICKETS = 2**32 - 1  # the most that cumulative sizes may reach: they are kept as 32-bit integers


class Draw(NamedTuple):
    """A cohort: one entry per place."""

    clients: jax.Array  # int32
    active: jax.Array  # bool; False: the place stays empty
    inverse_probability: jax.Array  # 1 / (expected number of times that this client is in a cohort)


class Scores(NamedTuple):
    """What the clients of an earlier phase reported."""

    clients: jax.Array
    values: jax.Array


class ClientSizes(NamedTuple):
    """What samplings know of the clients."""

    examples: jax.Array  # or whatever the task counts as size; real numbers
    tickets: jax.Array  # uint32: cumulative sizes, client i owns the tickets from tickets[i − 1] up to tickets[i]


@dataclass(frozen=True, eq=False, repr=False)
class Sampling(Part):
    """How cohorts are drawn, as data: theory, weighting and the engine read what they need of it."""

    draw: Callable[[Any, ClientSizes, int, Scores | None], Draw]  # (key, sizes, places, scores) → cohort
    probability: Callable[[np.ndarray], np.ndarray] | None  # sizes → chances per draw, where defined
    with_replacement: bool
    in_proportion_to_size: bool = False  # then the mean of the updates must be uniform
    needs_scores: bool = False  # cohorts are then known only once an earlier phase has ended


@named("sampling")
def uniform() -> Sampling:
    """`cohort` different clients, all alike."""

    def draw(key: Any, sizes: ClientSizes, cohort: int, scores: Scores | None) -> Draw:
        clients = sizes.tickets.shape[0]
        if cohort == clients:  # all of them, in order
            chosen = jnp.arange(clients, dtype=jnp.int32)
        else:
            priority = jax.random.bits(key, (clients,), jnp.uint32)
            chosen = jax.lax.top_k(priority, cohort)[1].astype(jnp.int32)
        return Draw(chosen, jnp.ones(cohort, bool), jnp.full(cohort, clients / cohort))

    return Sampling(draw, lambda sizes: np.full(len(sizes), 1 / len(sizes)), with_replacement=False)


@named("sampling")
def by_size() -> Sampling:
    """`cohort` independent draws, client i with probability size_i / Σ size."""

    def draw(key: Any, sizes: ClientSizes, cohort: int, scores: Scores | None) -> Draw:
        ticket = random_below(key, cohort, sizes.tickets[-1])
        chosen = jnp.searchsorted(sizes.tickets, ticket, side="right").astype(jnp.int32)
        own = sizes.tickets[chosen] - jnp.where(chosen > 0, sizes.tickets[chosen - 1], 0)
        share = own.astype(jnp.result_type(float)) / sizes.tickets[-1].astype(jnp.result_type(float))
        return Draw(chosen, jnp.ones(cohort, bool), 1 / (cohort * share))

    return Sampling(draw, lambda sizes: sizes / sizes.sum(), with_replacement=True, in_proportion_to_size=True)


def random_below(key: Any, count: int, bound: Any) -> Any:
    """`count` integers from 0 to bound − 1, each with the same probability to 2⁻³²: ⌊bound · r / 2⁶⁴⌋ for 64 bits r.

    `jax.random.randint` takes 32 bits modulo the bound: for 60 million examples some are then drawn 1.5 % more often.
    """
    high, low = jax.random.bits(key, (2, count), jnp.uint32)
    (high_high, high_low), (low_high, _) = _product(high, bound), _product(low, bound)
    carry = high_low + low_high < high_low  # the sum of the middle words overflows
    return high_high + carry.astype(jnp.uint32)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """The upper and the lower 32 bits of a · b, from products of 16-bit halves."""
    half = jnp.uint32(0xFFFF)
    a_high, a_low, b_high, b_low = a >> 16, a & half, b >> 16, b & half
    lowest, left, right = a_low * b_low, a_high * b_low, a_low * b_high
    middle = (lowest >> 16) + (left & half) + (right & half)
    return a_high * b_high + (left >> 16) + (right >> 16) + (middle >> 16), (middle << 16) | (lowest & half)


def client_sizes(sizes: np.ndarray) -> ClientSizes:
    """Sizes with their cumulative integers: exact for whole numbers that sum to less than 2³²."""
    return ClientSizes(jnp.asarray(sizes, jnp.result_type(float)), jnp.asarray(np.cumsum(_tickets(sizes)), jnp.uint32))


def _tickets(sizes: np.ndarray) -> np.ndarray:
    """Integers in proportion to the sizes: the sizes themselves where they are whole; else at least 1 per client."""
    sizes = np.asarray(sizes, np.float64)
    if sizes.sum() <= TICKETS and (sizes == np.floor(sizes)).all():
        return sizes.astype(np.uint64)
    scaled = np.floor(sizes / sizes.sum() * (TICKETS - len(sizes))).astype(np.uint64)
    return np.maximum(scaled, (sizes > 0).astype(np.uint64))


SAMPLINGS = FACTORIES["sampling"]
accepts("sampling", Sampling, '"uniform"')
