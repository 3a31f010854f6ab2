"""Hostile clients, to see what they do to a method: a share of the clients, the same in every round, sends something
else than it computed.

It is the last that happens to a contribution: a hostile client neither clips nor compresses, unless it wants to.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.checks import check_float, check_int
from fedtrue.algorithm.client_update import all_finite
from fedtrue.algorithm.compression import client_stream, name_key
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import Broadcast, Client, ClientOutput, ClientWork, Contribution
from fedtrue.spec import Part, accepts, named

HOSTILE = 7  # the stream of the choice of hostile clients, besides those that other parts of fedtrue draw from a seed
STREAM = 3  # of the random numbers that hostile clients draw from their key


@dataclass(frozen=True, eq=False, repr=False)
class Attack(Part):
    """What hostile clients send, and who they are."""

    sent: Callable[[Any, Any], Any]  # (key, array that was computed) → array that is sent
    is_hostile: Callable[[int], np.ndarray]  # number of clients → one truth value each


@named("attack")
def scaled(share: float = 0.2, factor: float = -1.0, seed: int = 0) -> Attack:
    """Hostile clients send `factor` times what they computed.

    Args:
        share: of the clients that are hostile, rounded to clients.
        factor: −1 flips signs; with inf an update is not finite, and the server drops and counts it.
        seed: of the choice of hostile clients; it does not depend on the seed of the run.

    Returns:
        An attack, for the option `attack` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), aggregator="median", attack="scaled(share=0.2, factor=-1000)")
    """
    if factor != math.inf:
        check_float("scaled: factor", factor, low=-math.inf)
    return Attack(lambda key, leaf: (factor * leaf).astype(leaf.dtype), hostile_share("scaled", share, seed))


@named("attack")
def random(share: float = 0.2, deviation: float = 1.0, seed: int = 0) -> Attack:
    """Hostile clients send independent normal numbers.

    Args:
        share: of the clients that are hostile, rounded to clients.
        deviation: standard deviation of the numbers.
        seed: of the choice of hostile clients; it does not depend on the seed of the run.

    Returns:
        An attack, for the option `attack` of a method.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.sgd(0.1), attack=ft.attack.random(share=0.1, deviation=10.0))
    """
    check_float("random: deviation", deviation)

    def sent(key: Any, leaf: Any) -> Any:
        return (deviation * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)

    return Attack(sent, hostile_share("random", share, seed))


def hostile_share(name: str, share: float, seed: int) -> Callable[[int], np.ndarray]:
    """number of clients → who of them is hostile: round(share · clients), at random."""
    check_float(f"{name}: share", share, high=1.0)
    check_int(f"{name}: seed", seed)

    def is_hostile(clients: int) -> np.ndarray:
        order = np.random.default_rng([HOSTILE, seed]).permutation(clients)
        return order < round(share * clients)

    return is_hostile


def hostile_work(work: ClientWork, attack: Attack) -> ClientWork:
    """The same client, which sends something else if it is hostile."""

    def finish(broadcast: Broadcast, state: Any, client: Client, context: Context) -> ClientOutput:
        output = work.finish(broadcast, state, client, context)
        hostile = jnp.asarray(attack.is_hostile(context.clients))[client.index]
        key = client_stream(context, client, STREAM)

        def replaced(name: str, contribution: Contribution) -> Contribution:
            leaves, tree = jax.tree.flatten(contribution.value)
            keys = jax.random.split(name_key(key, name), len(leaves))
            sent = [jnp.where(hostile, attack.sent(k, leaf), leaf) for k, leaf in zip(keys, leaves)]
            return replace(contribution, value=jax.tree.unflatten(tree, sent))

        sent = {name: replaced(name, each) for name, each in output.contributions.items()}
        return output._replace(contributions=sent, finite=output.finite & all_finite(sent))

    return work._replace(finish=finish)


accepts("attack", Attack, '"scaled(factor=-1)"')
