"""Who takes part in a round, drawn without looking at the clients' models.

uniform   without replacement, every client alike: weigh the updates by what the objective weighs clients by
by_size   with replacement, in proportion to size: the mean must then be uniform (the paper's Algorithm 1)
poisson   every client by itself with the same probability: the cohort's size is random
cyclic    as uniform, from one group of the clients per round, the groups in turn

`scored_sampling.py` has those that look at losses or updates first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.context import Context
from fedtrue.spec import Part, accepts, named

TICKETS = 2**32 - 1  # the most that cumulative sizes may reach: they are kept as 32-bit integers
MAX_OVERFLOW = 1e-9  # the chance per round that Poisson sampling draws more clients than there are places
GROUPS = 6  # the stream of the groups' order, besides those that other parts of fedtrue draw from a seed


class Draw(NamedTuple):
    """A cohort: one entry per place."""

    clients: jax.Array  # int32
    active: jax.Array  # bool; False: the place stays empty
    inverse_probability: jax.Array  # 1 / (expected number of times that this client is in a cohort); NaN: not known
    left_out: Any = 0  # clients that were drawn and found no place


class Scores(NamedTuple):
    """What the clients of an earlier phase reported."""

    clients: jax.Array
    values: jax.Array
    active: jax.Array  # False: nobody reported from this place, or no finite number


class ClientSizes(NamedTuple):
    """What samplings know of the clients."""

    examples: jax.Array  # or whatever the task counts as size; real numbers
    tickets: jax.Array  # uint32: cumulative sizes, client i owns the tickets from tickets[i − 1] up to tickets[i]


class Uploads(NamedTuple):
    """A choice among the clients that have trained: who sends its update, by numbers that all of them report first."""

    report: Callable[[dict[str, Any]], Any]  # a client's contributions → the numbers that it reports; bytes are counted
    choose: Callable[[Context, Draw, Any, Any, Any], tuple[Draw, Any]]
    """(context, who trained, reports, weights, state) → (who uploads, state)"""
    unbiased: bool  # weights × inverse probability, divided by the weight of all that trained, not of those that upload
    init: Callable[[Any], Any] = lambda params: ()  # params → state, kept as `sampling` of the `ServerState`
    estimate: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    """(server, pseudo-gradient of those that upload, sums) → (pseudo-gradient of all, state)"""
    exchanged: tuple[int, int] = (0, 0)  # bytes up and down, per client, until it is decided, besides the report


@dataclass(frozen=True, eq=False, repr=False)
class Sampling(Part):
    """How cohorts are drawn, as data: theory, weighting and the engine read what they need of it."""

    draw: Callable[[Context, ClientSizes, Scores | None], Draw]  # (context, sizes, scores) → cohort
    probability: Callable[[np.ndarray], np.ndarray] | None  # sizes → chances per draw, where defined
    with_replacement: bool
    in_proportion_to_size: bool = False  # then the mean of the updates must be uniform
    needs_scores: bool = False  # cohorts are then known only once an earlier phase has ended
    places: Callable[[int, int], int] = lambda clients, cohort: cohort  # (clients, cohort) → places of a draw
    rate: Callable[[int, int], float] | None = None
    """(clients, cohort) → q, if every client takes part with probability q independently of all others"""
    fixed_denominator: bool = False  # a mean is divided by the expected weight of a cohort, q Σ w_i; needs `rate`
    scoring: Any = None  # a `Phase` whose clients report the scores; `draw` then chooses among these clients
    uploads: Uploads | None = None  # None: everybody who trains uploads


@named("sampling")
def uniform() -> Sampling:
    """`cohort` different clients, all alike.

    Returns:
        A sampling, for the option `sampling` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), sampling=ft.sampling.uniform())
    """

    def draw(context: Context, sizes: ClientSizes, scores: Scores | None) -> Draw:
        clients, cohort = context.clients, context.cohort
        if cohort == clients:  # all of them, in order
            chosen = jnp.arange(clients, dtype=jnp.int32)
        else:
            priority = jax.random.bits(context.key, (clients,), jnp.uint32)
            chosen = jax.lax.top_k(priority, cohort)[1].astype(jnp.int32)
        return Draw(chosen, jnp.ones(cohort, bool), jnp.full(cohort, clients / cohort))

    return Sampling(draw, equal_probabilities, with_replacement=False)


def equal_probabilities(sizes: np.ndarray) -> np.ndarray:
    """Every client's chance per draw, if all are alike."""
    return np.full(len(sizes), 1 / len(sizes))


@named("sampling")
def by_size() -> Sampling:
    """`cohort` independent draws, client i with probability size_i / Σ size.

    Returns:
        A sampling, for the option `sampling` of a method; the mean of the updates is then uniform.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), sampling=ft.sampling.by_size())
    >>> method.weighting
    uniform()
    """

    def draw(context: Context, sizes: ClientSizes, scores: Scores | None) -> Draw:
        cohort = context.cohort
        ticket = random_below(context.key, cohort, sizes.tickets[-1])
        chosen = jnp.searchsorted(sizes.tickets, ticket, side="right").astype(jnp.int32)
        own = sizes.tickets[chosen] - jnp.where(chosen > 0, sizes.tickets[chosen - 1], 0)
        share = own.astype(jnp.result_type(float)) / sizes.tickets[-1].astype(jnp.result_type(float))
        return Draw(chosen, jnp.ones(cohort, bool), 1 / (cohort * share))

    return Sampling(draw, lambda sizes: sizes / sizes.sum(), with_replacement=True, in_proportion_to_size=True)


@named("sampling")
def poisson(fixed_denominator: bool = True) -> Sampling:
    """Every client independently with probability q = cohort / clients; the size is random.

    The mean is Σ_S w_i u_i / (q Σ w_i): unbiased, and a client's influence on it does not depend on who else takes
    part, as differential privacy needs it. A cohort may be empty; the server then stays as it is.

    There are so many places that a round draws more clients with probability 10⁻⁹ at most. Those for whom there is no
    place, chosen at random, are left out and counted as `left_out` in the record.

    Args:
        fixed_denominator: False: divide by the weight of the clients that take part, as for the other samplings. A
            smaller variance, and a bias where weights differ.

    Returns:
        A sampling, for the option `sampling` of a method.

    >>> import fedtrue as ft
    >>> sampling = ft.sampling.poisson()
    >>> sampling.rate(1000, 50)  # clients, cohort
    0.05
    >>> sampling.places(1000, 50)
    100
    """

    def draw(context: Context, sizes: ClientSizes, scores: Scores | None) -> Draw:
        places, q = poisson_places(context.clients, context.cohort), rate(context.clients, context.cohort)
        bits = jax.random.bits(context.key, (context.clients,), jnp.uint32)
        drawn = bits <= jnp.uint32(max(round(q * 2**32), 1) - 1)  # q to 2⁻³³
        chosen = jax.lax.top_k(~bits, places)[1].astype(jnp.int32)  # those with the smallest numbers
        active = drawn[chosen]
        return Draw(chosen, active, jnp.full(places, 1 / q), jnp.sum(drawn) - jnp.sum(active))

    def rate(clients: int, cohort: int) -> float:
        return cohort / clients

    return Sampling(
        draw,
        equal_probabilities,
        with_replacement=False,
        places=poisson_places,
        rate=rate,
        fixed_denominator=fixed_denominator,
    )


@cache
def poisson_places(clients: int, cohort: int) -> int:
    """The fewest places k with P(more than k clients) ≤ MAX_OVERFLOW, by Chernoff's bound.

    P(at least a · clients) ≤ exp(−clients · KL(a ‖ q)),  KL(a ‖ q) = a ln(a/q) + (1−a) ln((1−a)/(1−q))
    """
    q = cohort / clients

    def bound(count: int) -> float:
        a = count / clients
        rest = (1 - a) * math.log((1 - a) / (1 - q)) if a < 1 else 0.0
        return math.exp(-clients * (a * math.log(a / q) + rest))

    return next((k for k in range(cohort, clients) if bound(k + 1) <= MAX_OVERFLOW), clients)


@named("sampling")
def cyclic(groups: int = 2, rounds_per_group: int = 1, shuffle: bool = True, seed: int = 0) -> Sampling:
    """`cohort` different clients of one group, all alike; the groups take turns.

    As if clients were available at certain hours only (Eichner et al. 2019, Cho et al. 2023). In a round the other
    groups cannot be drawn, so its mean is not unbiased; over a cycle every client has the same chance, if the groups
    are equally large.

    Args:
        groups: of clients, equally large up to one client.
        rounds_per_group: rounds until the next group's turn.
        shuffle: False: clients that follow each other in the federation are in one group; else groups are random.
        seed: of the random groups; they do not depend on the seed of the run.

    Returns:
        A sampling, for the option `sampling` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), sampling="cyclic(groups=4)")
    """
    check_int("cyclic: groups", groups, low=1)
    check_int("cyclic: rounds_per_group", rounds_per_group, low=1)
    check_int("cyclic: seed", seed)

    def draw(context: Context, sizes: ClientSizes, scores: Scores | None) -> Draw:
        bounds, order = group_bounds(context.clients), order_of(context.clients)
        turn = context.round // rounds_per_group % groups
        start, end = bounds[turn], bounds[turn + 1]
        largest = -(-context.clients // groups)
        inside = start + jnp.arange(largest) < end
        bits = jax.random.bits(context.key, (largest,), jnp.uint32)
        priority = (bits >> 1) | (inside.astype(jnp.uint32) << 31)  # whoever is outside comes last
        chosen = jax.lax.top_k(priority, context.cohort)[1]
        per_cycle = jnp.minimum(context.cohort, end - start) / (end - start)
        inverse_probability = jnp.full(context.cohort, groups / per_cycle)
        return Draw(order[jnp.minimum(start + chosen, context.clients - 1)], inside[chosen], inverse_probability)

    def group_bounds(clients: int) -> Any:
        return jnp.asarray(np.arange(groups + 1) * clients // groups, jnp.int32)

    def order_of(clients: int) -> Any:
        order = np.random.default_rng([GROUPS, seed]).permutation(clients) if shuffle else np.arange(clients)
        return jnp.asarray(order, jnp.int32)

    def places(clients: int, cohort: int) -> int:
        check_int("cyclic: groups", groups, low=1, high=clients)
        largest = -(-clients // groups)
        if cohort > largest:
            raise ValueError(
                f"cyclic: each of the {groups} groups has at most {largest} of the {clients} clients, fewer than the "
                f"cohort of {cohort}: use a smaller cohort, or fewer groups"
            )
        return cohort

    return Sampling(draw, None, with_replacement=False, places=places)


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


accepts("sampling", Sampling, '"uniform"')
