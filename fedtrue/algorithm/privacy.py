"""Differential privacy: every client's contributions are clipped as one vector, and Gaussian noise is added.

    v_i = (contribution_c / s_c)_c      u_i = v_i min(1, C/‖v_i‖)
    place = "server"     Σ u_i + z C N(0, I)            to the sum of a cohort: central differential privacy
    place = "client"     u_i + z C N(0, I)              to every contribution: local differential privacy

s_c is a scale per contribution, 1 unless given, by which the arrays of `joint` or `moments` are balanced: the noise on
contribution c has the standard deviation z C s_c. All arrays of a client are shortened by one factor, which is as if
the client had a smaller weight, so ratios of their means stay right.

A denominator (a contribution with the role SCALE) whose noisy sum is below the standard deviation of its noise is taken
to be that: it cannot be told from 0, and is never negative.

The account is made by dp-accounting. With place "server" it is that of the Poisson-subsampled Gaussian mechanism, where
two federations differ by one client that is there or not.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.algorithm.compression import client_stream, name_key
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import (
    METHOD,
    SCALE,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Contribution,
    ServerState,
)
from fedtrue.algorithm.sampling import MAX_OVERFLOW, Sampling
from fedtrue.names import look_up
from fedtrue.spec import Part, accepts, named

PLACES = {
    "server": "to the sum over a cohort: central differential privacy",
    "client": "to every client's contributions: local differential privacy",
}
STREAM = 2  # of the noise that clients draw from their key
SERVER = 2**32 - 1  # a phase's key is folded with this for the server's noise; clients are numbered from 0

Contributions = dict[str, Contribution]


@dataclass(frozen=True, eq=False, repr=False)
class Privacy(Part):
    """Clipping and noise, as data."""

    clip: float | None  # C; None: no clipping
    noise: float  # z
    delta: float  # δ of the account
    place: str  # "server" or "client"
    scales: Mapping[str, float]  # s_c, by the name of a contribution; 1 for others

    @property
    def central(self) -> bool:
        """Whether the server adds noise."""
        return self.noise > 0 and self.place == "server"

    @property
    def local(self) -> bool:
        """Whether clients add noise."""
        return self.noise > 0 and self.place == "client"

    def deviation(self, name: str) -> float:
        """z C s_c: of the noise on a contribution."""
        return self.noise * (self.clip or 0.0) * self.scales.get(name, 1.0)


@named("privacy")
def gaussian(
    clip: float | None = None,
    noise: float = 0.0,
    delta: float = 1e-5,
    place: str = "server",
    scales: Mapping[str, float] | None = None,
) -> Privacy:
    """Clip every client's contributions to norm `clip`, and add normal noise of `noise` times that.

    McMahan et al. 2018. Noise at the server needs `sampling="poisson"` and `weighting="uniform"`.

    Args:
        clip: C, the largest norm of what a client sends, all its arrays together; without it, nothing is clipped.
        noise: z; the noise on the sum (or on every client's contributions) has the standard deviation z C.
        delta: δ, at which ε is recorded.
        place: "server" or "client": who adds the noise.
        scales: by name of a contribution, as {"inverse_trace": 10.0}: divides it before norms are taken.

    Returns:
        A part for the option `privacy` of a method.

    >>> import fedtrue as ft
    >>> private = ft.privacy.gaussian(clip=0.1, noise=1.0)
    >>> method = ft.fedopt(ft.client.sgd(0.1), "sgd", "none", sampling="poisson", weighting="uniform", privacy=private)
    """
    look_up("gaussian: place", PLACES, place)
    if clip is not None and clip != math.inf:
        check_float("gaussian: clip", clip, open_low=True)
    check_float("gaussian: noise", noise)
    check_float("gaussian: delta", delta, high=1.0, open_low=True)
    for name, scale in (scales or {}).items():
        check_float(f"gaussian: scales.{name}", scale, open_low=True)
    bound = None if clip is None or clip == math.inf else float(clip)
    if noise > 0 and bound is None:
        raise ValueError("gaussian: noise is a multiple of clip: give clip too, e.g. clip = 1.0")
    return Privacy(bound, noise, delta, place, dict(scales or {}))


def clipped(contributions: Contributions, bound: float, scales: Mapping[str, float]) -> Contributions:
    """All contributions times min(1, C/‖v‖), where v has every contribution divided by its scale."""
    squares = [
        jnp.sum((leaf.astype(jnp.result_type(float)) / scales.get(name, 1.0)) ** 2)
        for name, each in contributions.items()
        for leaf in jax.tree.leaves(each.value)
    ]
    norm = jnp.sqrt(sum(squares))
    factor = jnp.where(norm > bound, bound / jnp.where(norm > bound, norm, 1), 1)
    shortened = lambda leaf: (factor * leaf).astype(leaf.dtype)
    return {name: replace(each, value=jax.tree.map(shortened, each.value)) for name, each in contributions.items()}


def with_noise(privacy: Privacy, key: Any, contributions: Contributions, factor: Any = 1.0) -> Contributions:
    """Each plus normal numbers of standard deviation factor · z C s_c."""

    def noisy(name: str, contribution: Contribution) -> Contribution:
        leaves, tree = jax.tree.flatten(contribution.value)
        keys = jax.random.split(name_key(key, name), len(leaves))
        deviation = factor * privacy.deviation(name)
        noisy_leaves = [
            leaf + (deviation * jax.random.normal(k, leaf.shape, leaf.dtype)).astype(leaf.dtype)
            for k, leaf in zip(keys, leaves)
        ]
        return replace(contribution, value=jax.tree.unflatten(tree, noisy_leaves))

    return {name: noisy(name, each) for name, each in contributions.items()}


def private_work(work: ClientWork, privacy: Privacy) -> ClientWork:
    """The same client, whose contributions are clipped and, if it is its task, made noisy."""

    def finish(broadcast: Broadcast, state: Any, client: Client, context: Context) -> ClientOutput:
        output = work.finish(broadcast, state, client, context)
        sent = output.contributions
        if privacy.clip is not None:
            sent = clipped(sent, privacy.clip, privacy.scales)
        if privacy.local:
            sent = with_noise(privacy, client_stream(context, client, STREAM), sent)
        return output._replace(contributions=sent)

    return work if privacy.clip is None else work._replace(finish=finish)


Receive = Callable[[ServerState, WeightedSums, Context], tuple[ServerState, Any]]


def private_receive(receive: Receive, privacy: Privacy) -> Receive:
    """The same server, which adds noise to the sums if it is its task, and keeps denominators above the noise."""

    def received(server: ServerState, sums: WeightedSums, context: Context) -> tuple[ServerState, Any]:
        contributions, clients = sums.contributions, jnp.maximum(sums.clients, 1)
        if privacy.central:  # w, the same for all clients: their expected weight by their expected number
            factor = sums.weights[METHOD] / context.cohort
            contributions = with_noise(privacy, jax.random.fold_in(context.key, SERVER), contributions, factor)
        else:  # as many independent noises as clients
            factor = sums.weights[METHOD] / clients * jnp.sqrt(clients)
        above_noise = {name: _at_least(factor * privacy.deviation(name), each) for name, each in contributions.items()}
        return receive(server, sums._replace(contributions=above_noise), context)

    return received if privacy.noise > 0 else receive


def _at_least(deviation: Any, contribution: Contribution) -> Contribution:
    """A denominator that is not below the standard deviation of its noise; other contributions as they are."""
    if contribution.role != SCALE:
        return contribution
    above = lambda leaf: jnp.maximum(leaf, deviation.astype(leaf.dtype))
    return replace(contribution, value=jax.tree.map(above, contribution.value))


def epsilon(noise: float, rounds: int, rate: float = 1.0, delta: float = 1e-5) -> float:
    """ε of so many rounds of the Poisson-subsampled Gaussian mechanism, by dp-accounting's Rényi accountant.

    Args:
        noise: z, the standard deviation of the noise on a sum in units of the largest norm of one client's part.
        rounds: how often a sum is released.
        rate: q, the probability with which a client takes part in a round, independently of all others.
        delta: δ.

    Returns:
        ε, for federations that differ by one client that is there or not.

    >>> round(epsilon(noise=1.0, rounds=1000, rate=0.01), 3)
    2.101
    """
    check_float("delta", delta, high=1.0, open_low=True)
    return account(noise, rate)(rounds, delta)


def account(noise: float, rate: float) -> Callable[[int, float], float]:
    """(rounds, δ) → ε. Rényi divergences add up over rounds, so those of one round are computed once."""
    check_float("noise", noise)
    check_float("rate", rate, high=1.0 + 1e-9)
    accounting = _accounting()
    if noise == 0:
        return lambda rounds, delta: math.inf if rounds else 0.0
    accountant = accounting.rdp.RdpAccountant()
    event = accounting.GaussianDpEvent(noise)
    accountant.compose(event if rate >= 1 else accounting.PoissonSampledDpEvent(rate, event))
    orders, divergences = accountant._orders, accountant._rdp

    def spent(rounds: int, delta: float) -> float:
        check_int("rounds", rounds)
        if not 0 < delta < 1:
            return math.inf
        return float(accounting.rdp.compute_epsilon(orders, rounds * divergences, delta)[0]) if rounds else 0.0

    return spent


def _accounting() -> Any:
    try:
        import dp_accounting
        from dp_accounting import rdp  # noqa: F401
    except ImportError:
        raise ValueError("privacy needs a package: pip install 'fedtrue[privacy]'") from None
    return dp_accounting


def privacy_spent(
    privacy: Privacy | None, sampling: Sampling, clients: int, cohort: int, phases: int = 1
) -> Callable[[int], float] | None:
    """rounds → ε at the part's δ; None for a method that adds no noise.

    Clients that find no place in a Poisson cohort would make it another mechanism. The chance of that, at most 10⁻⁹ per
    round, is part of δ. A client that adds its noise itself is accounted as if it took part in every round, and as if
    its data could be any other: its contribution then changes by 2 C, and its noise is z/2 of that. It sends one in
    each of the `phases` of a round.
    """
    if privacy is None or privacy.noise == 0:
        return None
    if privacy.local:
        of_client = account(privacy.noise / 2, 1.0)
        return lambda rounds: of_client(rounds * phases, privacy.delta)
    assert sampling.rate is not None, "noise at the server is refused without it"
    spent = account(privacy.noise, sampling.rate(clients, cohort))
    overflow = MAX_OVERFLOW if sampling.places(clients, cohort) < clients else 0.0
    return lambda rounds: spent(rounds, privacy.delta - rounds * overflow)


accepts("privacy", Privacy, '"gaussian(clip=1.0, noise=1.0)"')
