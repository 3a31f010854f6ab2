"""What a `ClientApp` that you wrote yourself needs: it answers the server's question, and replies with an update."""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedtrue.algorithm.interface import METHOD, OBJECTIVE, UNIFORM
from fedtrue.flower.wire import CONFIG, CONTRIBUTION, ERROR, METRICS, REPLY, WEIGHT, to_record

PARTITION = "partition-id"  # of a node's config: the number of its client


def client_number(context: Context) -> int:
    """The number of the node's client."""
    if PARTITION not in context.node_config:
        raise ValueError(
            f"this node has no {PARTITION}, the number of its client: start its SuperNode with "
            "--node-config partition-id=0"
        )
    return int(context.node_config[PARTITION])


def answer(message: Message, context: Context, *, examples: int, weight: float | None = None) -> Message:
    """The reply to the server's first question: which client a node is, and how much data it has.

    Args:
        message: the query.
        context: of the node; its `partition-id` is the number of the client.
        examples: how many the client trains on.
        weight: of the client in the objective; without it, the number of examples.

    Returns:
        What a function with `@app.query()` returns.

    >>> import fedtrue as ft
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp()
    >>> @app.query()
    ... def query(message, context):
    ...     return ft.flower.answer(message, context, examples=40)
    """
    weight = float(examples if weight is None else weight)
    return described(message, client_number(context), examples, {METHOD: weight, OBJECTIVE: weight})


def described(message: Message, client: int, examples: float, weights: Mapping[str, float]) -> Message:
    """A client's number, examples and weights; those of the objective are not normalised."""
    weighed = {WEIGHT + name: float(weight) for name, weight in weights.items()}
    record = ConfigRecord({"client": client, "examples": float(examples), **weighed})
    return Message(RecordDict({REPLY: record}), reply_to=message)


def correction(message: Message) -> Any:
    """The server's correction, for `ft.torch.trace(optimizer, …)`: it is then named in one place.

    Args:
        message: of a training round.

    Returns:
        The correction's name, or a table with its options.

    >>> import fedtrue as ft
    >>> def train(message, context):
    ...     optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ...     trace = ft.torch.trace(optimizer, ft.flower.correction(message))
    """
    return json.loads(str(message.content.config_records[CONFIG]["method"])).get("correction", "none")


def reply(
    message: Message,
    context: Context,
    update: Mapping[str, Any],
    *,
    examples: int,
    steps: int,
    weight: float | None = None,
    metrics: Mapping[str, tuple[float, float]] | None = None,
) -> Message:
    """The reply to a training round.

    Args:
        message: of the training round.
        context: of the node.
        update: what the client sends: `trace.update(model, start)` of `ft.torch.trace`.
        examples: how many it has trained on.
        steps: local steps.
        weight: of the client; without it the number of examples, or 1 if the method weighs clients uniformly.
        metrics: {name: (total, count)}, e.g. the loss summed over the examples and their number.

    Returns:
        What a function with `@app.train()` returns.

    >>> import fedtrue as ft
    >>> def train(message, context):
    ...     update, examples, steps = my_loop(message)  # ends with trace.update(model, start)
    ...     return ft.flower.reply(message, context, update, examples=examples, steps=steps)
    """
    config = message.content.config_records[CONFIG]
    if weight is None:
        weight = 1.0 if config["weighting"] == UNIFORM else float(examples)
    weights = {METHOD: weight, OBJECTIVE: weight / float(config["objective-total"]), UNIFORM: 1.0}  # type: ignore[arg-type]
    scaled = {name: jax.tree.map(lambda leaf: _scaled(leaf, weight), value) for name, value in update.items()}
    sums = {name: (float(total), float(count)) for name, (total, count) in (metrics or {}).items()}
    return trained(message, client_number(context), steps, weights, scaled, sums)


def _scaled(leaf: Any, weight: float) -> np.ndarray:
    leaf = np.asarray(leaf)
    return leaf * np.asarray(weight, leaf.dtype)


def trained(
    message: Message,
    client: int,
    steps: int,
    weights: Mapping[str, float],
    contributions: Mapping[str, Any],
    metrics: Mapping[str, tuple[float, float]],
) -> Message:
    """A client's part of the weighted sums; no contributions: they were not finite."""
    weighed = {WEIGHT + name: float(weight) for name, weight in weights.items()}
    records: dict[str, Any] = {CONTRIBUTION + name: to_record(value) for name, value in contributions.items()}
    records[METRICS] = MetricRecord({name: [float(total), float(count)] for name, (total, count) in metrics.items()})
    finite = bool(contributions)
    records[REPLY] = ConfigRecord({"client": client, "steps": int(steps), "finite": finite, **weighed})
    return Message(RecordDict(records), reply_to=message)


def failed(message: Message, error: Exception) -> Message:
    """A reply that says in one line why there is no other."""
    return Message(RecordDict({REPLY: ConfigRecord({ERROR: " ".join(str(error).split())})}), reply_to=message)
