"""Weighted sums of client outputs: all the server ever sees, so that secure aggregation stays possible."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.interface import METHOD, SCALE, STATE, ClientOutput, Context, Contribution, Phase, ServerState
from fedtrue.algorithm.sampling import Draw

TRAINED = "trained"  # in the sums of weights, where updates are estimated: the method's weight of all that trained


class WeightedSums(NamedTuple):
    """Sums over clients. Adding two of them, leaf by leaf, is the union of their clients."""

    contributions: dict[str, Contribution]  # Σ w_i value_i, each with its own weighting
    weights: Mapping[str, Any]  # weighting → Σ w_i
    metric_sums: Any  # unweighted
    clients: Any  # how many were summed
    dropped: Any  # how many were not finite


def weigh(output: ClientOutput, weights: Mapping[str, Any], present: Any = True) -> WeightedSums:
    """One client's part of the sums: nothing at all if it is absent, only counted if it is not finite."""
    kept = present & output.finite
    weights = {STATE: weights[METHOD], **weights}
    weights = {weighting: jnp.where(kept, weight, 0) for weighting, weight in weights.items()}

    def scaled(contribution: Contribution) -> Contribution:
        weight = weights[contribution.weighting]
        # where, not a product: 0 · ∞ is NaN
        value = jax.tree.map(lambda leaf: jnp.where(kept, leaf * weight.astype(leaf.dtype), 0), contribution.value)
        return replace(contribution, value=value)

    return WeightedSums(
        {name: scaled(contribution) for name, contribution in output.contributions.items()},
        weights,
        jax.tree.map(lambda leaf: jnp.where(kept, leaf, 0), output.metric_sums),
        kept.astype(jnp.int32),
        (present & ~output.finite).astype(jnp.int32),
    )


def uploaded(
    trained: WeightedSums, contributions: Any, weights: Mapping[str, Any], uploads: Draw, unbiased: bool
) -> WeightedSums:
    """The sums over those of the trained clients that upload; `contributions` and `weights` have one row per place.

    Where that is unbiased, Σ_uploads (w_i / p_i) u_i over Σ_trained w_i; else both sums are over those that upload.
    Contributions with a weighting of their own (OBJECTIVE) keep account of what clients store: never divided by p_i.
    States have the weights of the updates, over those that upload.
    """
    scaled = {**weights, METHOD: weights[METHOD] * uploads.inverse_probability} if unbiased else weights
    outputs = ClientOutput(contributions, (), (), jnp.ones(uploads.active.shape, bool))
    sums = total(jax.vmap(weigh)(outputs, scaled, uploads.active))
    denominator = {METHOD if unbiased else TRAINED: trained.weights[METHOD]}
    return trained._replace(
        contributions=sums.contributions, weights={**sums.weights, **denominator}, clients=sums.clients
    )


def combined(trained: WeightedSums, contributions: Any, sent: Any, combine: Callable[[Any, Any], Any]) -> WeightedSums:
    """Sums whose means are `combine(contributions, sent)`; `contributions` has one row per place.

    A client that sends a scale below 0 is hostile: it counts as 0.
    """

    def times_weight(contribution: Contribution) -> Contribution:
        weight = trained.weights[contribution.weighting]
        return replace(
            contribution, value=jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), contribution.value)
        )

    def not_negative(contribution: Contribution) -> Contribution:
        if contribution.role != SCALE:
            return contribution
        above_0 = lambda leaf: leaf if linear.is_matrix_map(leaf) else jnp.maximum(leaf, 0)
        return replace(contribution, value=jax.tree.map(above_0, contribution.value, is_leaf=linear.is_matrix_map))

    estimates = combine({name: not_negative(each) for name, each in contributions.items()}, sent)
    return trained._replace(contributions={name: times_weight(each) for name, each in estimates.items()})


def with_expected_weights(sums: WeightedSums, weights: Mapping[str, Any], probability: Any) -> WeightedSums:
    """The sums, to be divided by the expected weight of a cohort, q Σ w_i over all clients, in place of its own.

    States keep the weight of those that sent them.
    """
    expected = {name: probability * jnp.sum(each) for name, each in weights.items()}
    return sums._replace(weights={**sums.weights, **expected})


def total(weighted: WeightedSums) -> WeightedSums:
    """The sum over a leading axis of clients."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), weighted)


def weighted_sum(sums: WeightedSums, name: str) -> Any:
    """Σ w_i value_i.

    Args:
        sums: the sums of a round.
        name: of the contribution.

    Returns:
        The sum over the cohort, not divided by the sum of the weights.

    >>> weighted_sum(WeightedSums({"update": Contribution(6.0)}, {"method": 3.0}, {}, 2, 0), "update")
    6.0
    """
    return sums.contributions[name].value


def mean(sums: WeightedSums, name: str) -> Any:
    """Σ w_i value_i / Σ w_i, and 0 when no client is left.

    Args:
        sums: the sums of a round.
        name: of the contribution.

    Returns:
        The mean over the cohort, by the contribution's own weighting.

    >>> update = Contribution(jnp.asarray(6.0))
    >>> float(mean(WeightedSums({"update": update}, {"method": jnp.asarray(3.0)}, {}, 2, 0), "update"))
    2.0
    """
    contribution = sums.contributions[name]
    weight = sums.weights[contribution.weighting]
    weight = jnp.where(weight == 0, 1, weight)
    return jax.tree.map(lambda leaf: leaf / weight.astype(leaf.dtype), contribution.value)


def receive(phase: Phase, server: ServerState, sums: WeightedSums, context: Context) -> tuple[ServerState, Any]:
    """The server after a phase, and the pseudo-gradient it used; unchanged by a phase with no client left.

    Where the updates of those that do not upload are estimated, it is enough that somebody has trained.
    """
    received, pseudo_gradient = phase.receive(server, sums, context)
    if phase.receives_nothing:
        return received, pseudo_gradient
    anyone = (sums.clients > 0) | (sums.weights.get(TRAINED, 0) > 0)
    return jax.tree.map(lambda new, old: jnp.where(anyone, new, old), received, server), pseudo_gradient
