"""The server's half of an exchange: replies are checked, and those that are good are added up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Message

from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.interface import (
    METHOD,
    STATE,
    WEIGHTINGS,
    Client,
    Context,
    Contribution,
    Loss,
    Phase,
    ServerState,
)
from fedtrue.flower.wire import CONTRIBUTION, ERROR, METRICS, REPLY, WEIGHT, from_record


class NotFinite(ValueError):
    """A reply with numbers that are NaN or infinite."""


class GoodReply(NamedTuple):
    """A client's part of the weighted sums."""

    steps: int
    sums: WeightedSums  # without metrics
    metrics: dict[str, tuple[float, float]]  # name → (total, count)


def expected_contributions(phase: Phase, server: ServerState, context: Context) -> dict[str, Contribution]:
    """The names, shapes and types of what a client contributes; they depend on the weights, and not on the loss."""

    def first_client(server: ServerState, key: Any) -> Any:
        loss = Loss(lambda params, batch: (sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params)), {}), {})
        client = Client(jnp.int32(0), jnp.int32(1), *jnp.ones(2, jnp.result_type(float)))
        work, broadcast = phase.work(loss), phase.broadcast(server, context._replace(key=key))
        state = work.start(broadcast, client, work.init_memory(broadcast, client.index))
        return work.finish(broadcast, state, client, context._replace(key=key)).contributions

    return jax.eval_shape(first_client, server, context.key)


def read_reply(message: Message, client: int, expected: dict[str, Contribution]) -> GoodReply:
    """What a client sent; ValueError with one line: why it cannot be used."""
    if message.has_error():
        raise ValueError(f"its app failed ({(message.error.reason or 'no reason given').strip().splitlines()[-1]})")
    content = message.content
    said: Any = content.config_records.get(REPLY)
    if said is None:
        raise ValueError("the reply is empty: use client_app, or return ft.flower.reply(…)")
    if ERROR in said:
        raise ValueError(str(said[ERROR]))
    if said.get("client") != client:
        raise ValueError(f"it says that it is client {said.get('client')}")
    if not said.get("finite", True):
        raise NotFinite("its update is not finite")
    weights = {name: float(said.get(WEIGHT + name, 0)) for name in WEIGHTINGS}
    if not all(np.isfinite(weight) and weight > 0 for weight in weights.values()):
        raise ValueError(f"its weight is {weights[METHOD]:g}: a client without data must not reply")
    weights[STATE] = weights[METHOD]
    contributions = {name: _contribution(content, name, like) for name, like in expected.items()}
    records = {name.removeprefix(CONTRIBUTION) for name in content.array_records}
    if extra := sorted(records - set(expected)):
        raise ValueError(
            f"it sent {extra[0]!r}, which the server's method does not take: give it the server's correction"
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(contributions)):
        raise NotFinite("its update is not finite")
    pairs = {name: tuple(pair) for name, pair in content.metric_records.get(METRICS, {}).items()}  # type: ignore[arg-type]
    metrics = {name: (float(pair[0]), float(pair[1])) for name, pair in pairs.items() if len(pair) == 2}
    return GoodReply(int(said.get("steps", 0)), WeightedSums(contributions, weights, (), 1, 0), metrics)


def _contribution(content: Any, name: str, like: Contribution) -> Contribution:
    if CONTRIBUTION + name not in content.array_records:
        raise ValueError(f"it sent no {name!r}, which the server's method needs: give it the server's correction")
    value = from_record(content.array_records[CONTRIBUTION + name], like.value, f"its {name!r}")
    return replace(like, value=value)


def added(replies: Sequence[GoodReply], counts: Sequence[int], expected: dict[str, Contribution]) -> WeightedSums:
    """The sums over clients; a client that was drawn twice counts twice."""
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), expected)
    total = WeightedSums(zeros, dict.fromkeys((*WEIGHTINGS, STATE), 0.0), (), 0, 0)
    for reply, count in zip(replies, counts):
        total = jax.tree.map(
            lambda sum_, own, n=count: sum_ + own * np.asarray(n, np.asarray(own).dtype), total, reply.sums
        )
    real = jnp.result_type(float)
    weights = {name: jnp.asarray(weight, real) for name, weight in total.weights.items()}
    return total._replace(weights=weights, clients=jnp.int32(total.clients), dropped=jnp.int32(0))


def added_metrics(replies: Sequence[GoodReply], names: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{name: (total, count)}, each with one row for the round."""
    found = {name: [reply.metrics[name] for reply in replies if name in reply.metrics] for name in names}
    column = lambda pairs, part: np.asarray([sum(pair[part] for pair in pairs)], np.float64)
    return {name: (column(pairs, 0), column(pairs, 1)) for name, pairs in found.items()}
