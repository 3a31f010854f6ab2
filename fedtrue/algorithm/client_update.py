"""The local steps of ONE client. It knows nothing of lanes, devices or networks.

`ClientWork` is the update cut at its three seams (start, step, finish), so that a simulator may interleave many
clients; `client_update` is the three in a row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.server_optimizer import ServerState
from fedtrue.algorithm.trace import Trace

Loss = Callable[[Any, Any], tuple[Any, Any]]  # (params, batch) → (scalar, sums)


class ClientState(NamedTuple):
    """A client in the middle of its local steps."""

    params: Any
    optimizer: Any  # the preconditioner's state
    move: Any  # the move's memory
    trace: Any
    sums: Any  # metric sums of its batches


class ClientOutput(NamedTuple):
    """What leaves the client."""

    contribution: Any  # to be summed with weights
    sums: Any  # metric sums, to be added
    finite: Any  # False: the client is dropped and counted
    memory: Any  # what the client keeps for itself, () if nothing


class ClientWork(NamedTuple):
    """A client's update in three parts; `memory` is what it kept from its last round."""

    first_memory: Callable[[Any, Any], Any]  # (params, client) → memory of a client that never took part
    start: Callable[[ServerState, Any, Any, Any], ClientState]  # (server, client, memory, metric sums at 0)
    step: Callable[[ClientState, Any, Any], ClientState]  # (state, batch, learning rate)
    finish: Callable[[ServerState, ClientState, Any], ClientOutput]  # (server, state, rate multiplier)


def client_work(
    loss: Loss, optimizer: ClientOptimizer, trace: Trace, correction: Correction, client_state: str
) -> ClientWork:
    """Algorithm 1's inner loop. `client_state` says where the optimizer's state comes from at the start."""

    traced = correction.needs_trace

    def fresh(params: Any, client: Any) -> dict[str, Any]:
        return {
            "optimizer": optimizer.init(params, client),
            "move": optimizer.move.rest(params),
            "trace": trace.rest(optimizer, params) if traced else (),
        }

    def first_memory(params: Any, client: Any) -> Any:
        return fresh(params, client) if client_state == "inherit" else ()

    def start(server: ServerState, client: Any, memory: Any, no_sums: Any) -> ClientState:
        restart = fresh(server.params, client)
        begin = {"restart": restart, "sync": {**restart, "optimizer": server.shared}, "inherit": memory}[client_state]
        n = trace.init(optimizer, server.params, restart["optimizer"], begin["trace"]) if traced else ()
        return ClientState(server.params, begin["optimizer"], begin["move"], n, no_sums)

    def step(state: ClientState, batch: Any, learning_rate: Any) -> ClientState:
        (_, sums), gradient = jax.value_and_grad(loss, has_aux=True)(state.params, batch)
        p, optimizer_state = optimizer.precondition(gradient, state.optimizer)
        move, memory = optimizer.move.step(gradient, p, optimizer_state, state.move)
        return ClientState(
            jax.tree.map(lambda x, s: x - (learning_rate * s).astype(x.dtype), state.params, move),
            optimizer_state,
            memory,
            trace.update(optimizer, p, optimizer_state, state.trace) if traced else (),
            jax.tree.map(jnp.add, state.sums, sums),
        )

    def finish(server: ServerState, state: ClientState, rate_multiplier: Any) -> ClientOutput:
        pseudo_gradient = jax.tree.map(jnp.subtract, server.params, state.params)
        n = jax.tree.map(lambda n: rate_multiplier * n, trace.total(state.trace)) if traced else None
        contribution = {"correction": correction.send(pseudo_gradient, n)}
        if client_state == "sync":
            contribution["shared"] = state.optimizer
        kept = {"optimizer": state.optimizer, "move": state.move, "trace": trace.keep(state.trace) if traced else ()}
        memory = kept if client_state == "inherit" else ()
        return ClientOutput(contribution, state.sums, all_finite(contribution), memory)

    return ClientWork(first_memory, start, step, finish)


def client_update(
    work: ClientWork,
    server: ServerState,
    client: Any,
    memory: Any,
    no_sums: Any,
    batch_at: Callable[[Any], Any],
    steps: Any,
    learning_rate: Any,
    rate_multiplier: Any = 1.0,
) -> ClientOutput:
    """`steps` local steps of one client on `batch_at(0), batch_at(1), …`."""
    rate = rate_multiplier * learning_rate
    state = work.start(server, client, memory, no_sums)
    state = jax.lax.fori_loop(0, steps, lambda k, state: work.step(state, batch_at(k), rate), state)
    return work.finish(server, state, rate_multiplier)


def all_finite(tree: Any) -> Any:
    """True when no number in the tree is NaN or infinite."""
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]).all()
