"""Robust aggregation: an estimate in place of the mean, that a minority of hostile clients cannot move far.

median         of every coordinate
trimmed_mean   of every coordinate, without the largest and the smallest values
krum           the update with the smallest distances to others, or the mean of a few such updates

Every client counts once, whatever the weighting: a weight that a client claims is another way to attack. The server
needs every client's contributions for it, so secure aggregation, which shows the sum alone, is not possible.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.algorithm.interface import Contribution
from fedtrue.spec import Part, accepts, named

ROUNDING = 1e-4  # 0.3 · 50 is above 15 in floating point, and must not be rounded up to 16

Rows = dict[str, Contribution]  # name → contribution, its arrays with one row per place


@dataclass(frozen=True, eq=False, repr=False)
class Aggregator(Part):
    """What the server makes of a cohort's contributions, as data."""

    combine: Callable[[Rows, Any], Rows] | None  # (contributions, who sent them) → one of each; None: their mean
    by_coordinate: bool = False  # whether every entry is estimated by itself, so that a matrix may lose its structure
    check_cohort: Callable[[int], None] = lambda cohort: None  # refuses a cohort that is too small


@named("aggregator")
def mean() -> Aggregator:
    """The weighted mean, as without an aggregator: the server needs sums only.

    Returns:
        An aggregator, for the option `aggregator` of a method; in a sweep, what others are compared with.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), aggregator="mean")
    """
    return Aggregator(None)


@named("aggregator")
def median() -> Aggregator:
    """The median of every coordinate.

    Yin, Chen, Ramchandran and Bartlett 2018. With fewer than half of the cohort hostile, every coordinate lies between
    two honest values.

    Returns:
        An aggregator, for the option `aggregator` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), correction="none", aggregator="median")
    """

    def middle(ordered: Any, count: Any) -> Any:
        low, high = jnp.maximum(count - 1, 0) // 2, count // 2
        return ordered[low] / 2 + ordered[high] / 2

    return Aggregator(_by_coordinate(middle), by_coordinate=True)


@named("aggregator")
def trimmed_mean(share: float = 0.1) -> Aggregator:
    """The mean of every coordinate without the `share` largest and the `share` smallest values.

    Yin, Chen, Ramchandran and Bartlett 2018. Give at least the share of clients that may be hostile.

    Args:
        share: of the cohort that is cut off at each end, rounded up to clients; below 0.5.

    Returns:
        An aggregator, for the option `aggregator` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), aggregator=ft.aggregator.trimmed_mean(share=0.2))
    """
    check_float("trimmed_mean: share", share, high=0.5)

    def trimmed(ordered: Any, count: Any) -> Any:
        cut = jnp.minimum(jnp.ceil(share * count - ROUNDING).astype(count.dtype), jnp.maximum(count - 1, 0) // 2)
        rank = jnp.arange(ordered.shape[0]).reshape(-1, *[1] * (ordered.ndim - 1))
        kept = (rank >= cut) & (rank < count - cut)
        return jnp.sum(jnp.where(kept, ordered, 0), axis=0) / jnp.maximum(count - 2 * cut, 1)

    return Aggregator(_by_coordinate(trimmed), by_coordinate=True)


@named("aggregator")
def krum(hostile: int = 1, kept: int = 1) -> Aggregator:
    """The update that is nearest to its neighbours, or the mean of the `kept` nearest (multi-Krum).

    Blanchard, El Mhamdi, Guerraoui and Stainer 2017. The score of a client is the sum of its squared distances to the
    n − hostile − 2 nearest others, and those with the smallest scores are kept. Where clients send several trees
    (`joint`), a squared distance is the sum of those of the trees, each divided by its median over all pairs.

    Args:
        hostile: f, the hostile clients in a cohort, at most; a cohort needs at least 2 f + 3 clients.
        kept: clients whose mean is taken; 1 is Krum.

    Returns:
        An aggregator, for the option `aggregator` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), aggregator="krum(hostile=2, kept=5)")
    """
    check_int("krum: hostile", hostile)
    check_int("krum: kept", kept, low=1)

    def combine(rows: Rows, sent: Any) -> Rows:
        places, count = sent.shape[0], jnp.sum(sent)
        pairs = sent[:, None] & sent[None, :] & ~jnp.eye(places, dtype=bool)
        squared = sum(_relative(squared_distances(each.value), pairs) for each in rows.values())
        nearest = jnp.sort(jnp.where(pairs, squared, jnp.inf), axis=1)
        neighbours = jnp.maximum(count - hostile - 2, 1)
        score = jnp.sum(jnp.where(jnp.arange(places) < neighbours, nearest, 0), axis=1)
        rank = jnp.argsort(jnp.lexsort((score, ~sent)))  # the score of a client that is alone is infinite too
        chosen = sent & (rank < kept)
        return _mapped(rows, lambda leaf: _mean_of(leaf, chosen))

    def check_cohort(cohort: int) -> None:
        if cohort < 2 * hostile + 3:
            raise ValueError(
                f"krum: with {hostile} hostile clients a cohort needs at least {2 * hostile + 3}, not {cohort}: use a "
                "larger cohort, or a smaller `hostile`"
            )

    return Aggregator(combine, check_cohort=check_cohort)


def squared_distances(tree: Any) -> Any:
    """‖a_i − a_j‖² of all pairs of rows, by differences: squares of sums would cancel beside an update of 10⁶."""

    def to_all(i: Any) -> Any:
        squares = (
            jnp.sum((leaf - leaf[i]).reshape(leaf.shape[0], -1).astype(jnp.result_type(float)) ** 2, axis=1)
            for leaf in jax.tree.leaves(tree)
        )
        return sum(squares)

    places = jax.tree.leaves(tree)[0].shape[0]
    return jax.lax.map(to_all, jnp.arange(places))


def _relative(squared: Any, pairs: Any) -> Any:
    """Divided by the median over the pairs, which hostile clients cannot choose; as it is where that is 0."""
    median = jnp.nanmedian(jnp.where(pairs, squared, jnp.nan))
    return squared / jnp.where(median > 0, median, 1)


def _by_coordinate(estimate: Callable[[Any, Any], Any]) -> Callable[[Rows, Any], Rows]:
    """`estimate(values in order, how many of them count)` of every coordinate; those of absent clients are last."""

    def combine(rows: Rows, sent: Any) -> Rows:
        def of_leaf(leaf: Any) -> Any:
            last = jnp.inf if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.iinfo(leaf.dtype).max
            ordered = jnp.sort(jnp.where(_beside(sent, leaf), leaf, last), axis=0)
            count = jnp.sum(sent)
            return jnp.where(count > 0, estimate(ordered, count), 0).astype(leaf.dtype)

        return _mapped(rows, of_leaf)

    return combine


def _mapped(rows: Rows, of_leaf: Callable[[Any], Any]) -> Rows:
    return {name: replace(each, value=jax.tree.map(of_leaf, each.value)) for name, each in rows.items()}


def _mean_of(leaf: Any, chosen: Any) -> Any:
    total = jnp.sum(jnp.where(_beside(chosen, leaf), leaf, 0), axis=0)
    return (total / jnp.maximum(jnp.sum(chosen), 1)).astype(leaf.dtype)


def _beside(of_places: Any, leaf: Any) -> Any:
    """One entry per place, in a shape that broadcasts with the rows of a leaf."""
    return of_places.reshape(-1, *[1] * (leaf.ndim - 1))


accepts("aggregator", Aggregator, '"median"')
