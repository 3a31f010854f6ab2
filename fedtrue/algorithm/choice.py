"""One part that does what the `which`-th of several does, `which` being a traced number.

So runs that differ in their parts can be cells of one grid and train in one program: gradients, which cost most, are
shared code, and of the rest each cell computes all options and keeps its own. The others are computed beside it and
thrown away, so a cell's numbers are those of the same run alone, up to how the compiler orders its sums.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.correction import Average, Correction, Sent
from fedtrue.algorithm.move import Move
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.step_options import chosen_options


def select(which: Any, options: Sequence[Any]) -> Any:
    """`options[which]`, trees of one structure; a single number stands for a leaf that is the same everywhere."""
    if len(options) == 1:
        return options[0]
    return jax.tree.map(lambda *leaves: jax.lax.select_n(which, *jnp.broadcast_arrays(*leaves)), *options)


def client_optimizer(which: Any, options: Sequence[ClientOptimizer]) -> ClientOptimizer:
    """Its state is that of all options, side by side."""
    if len(options) == 1:
        return options[0]

    def precondition(g: Any, states: Any) -> tuple[Any, Any]:
        maps, states = zip(*(option.precondition(g, state) for option, state in zip(options, states)))
        return select(which, maps), states

    def step(vector: Any, p: Any, states: Any, memories: Any) -> tuple[Any, Any]:
        entries = zip(options, states, memories)
        steps, memories = zip(*(option.move.step(vector, p, state, memory) for option, state, memory in entries))
        return select(which, steps), memories

    def preconditioner(states: Any, g: Any) -> Any:
        return select(which, [option.preconditioner(state, g) for option, state in zip(options, states)])

    return ClientOptimizer(
        lambda round_index: _number(which, [option.learning_rate(round_index) for option in options]),
        lambda params, client: tuple(option.init(params, client) for option in options),
        precondition,
        preconditioner,
        Move(lambda params: tuple(option.move.init(params) for option in options), step),
        _number(which, [option.beta1 for option in options]),
        any(option.adaptive for option in options),
        all(option.bounded for option in options),
        all(option.diagonal for option in options),
        any(option.per_client for option in options),
        chosen_options(lambda numbers: _number(which, numbers), [option.options for option in options]),
    )


def correction(which: Any, options: Sequence[Correction]) -> Correction:
    """What the chosen one sends; parts that only others send are 0."""
    if len(options) == 1:
        return options[0]

    def send(steps: Steps) -> Sent:
        sent = [option.send(steps) for option in options]
        names = {name: parts[name] for parts in sent for name in parts}
        nothing = {name: jax.tree.map(jnp.zeros_like, part) for name, part in names.items()}
        return {name: select(which, [parts.get(name, nothing[name]) for parts in sent]) for name in names}

    def receive(mean: Sent, states: Any) -> tuple[Any, Any]:
        received = [option.receive(mean, state) for option, state in zip(options, states or [()] * len(options))]
        return select(which, [pseudo_gradient for pseudo_gradient, _ in received]), tuple(kept for _, kept in received)

    def init(params: Any, no_trace: Callable[[], Any]) -> Any:
        return tuple(option.init(params, no_trace) for option in options)

    def divided_by(states: Any, weights: Any) -> tuple[Any, Any]:
        used, states = zip(*(option.denominator.update(state, weights) for option, state in zip(options, states)))
        return select(which, used), states

    needs = frozenset().union(*(option.needs for option in options))
    scales = frozenset().union(*(option.scales for option in options))
    means = frozenset().union(*(option.means for option in options))
    multiplies = any(option.multiplies_by_trace for option in options)
    denominator = Average(lambda like: tuple(option.denominator.init(like) for option in options), divided_by)
    return Correction(send, receive, init, needs, multiplies, scales=scales, means=means, denominator=denominator)


def server_optimizer(which: Any, options: Sequence[ServerOptimizer]) -> ServerOptimizer:
    """Its state is that of all options, side by side."""
    if len(options) == 1:
        return options[0]

    def update(pseudo_gradient: Any, states: Any, params: Any = None) -> tuple[Any, Any]:
        stepped = [option.update(pseudo_gradient, state, params) for option, state in zip(options, states)]
        return select(which, [updates for updates, _ in stepped]), tuple(state for _, state in stepped)

    return ServerOptimizer(lambda params: tuple(option.init(params) for option in options), update)


def _number(which: Any, options: Sequence[Any]) -> Any:
    return select(which, [jnp.asarray(option, jnp.result_type(float)) for option in options])
