"""FedLADA (Sun et al. 2023): local AMSGrad steps, amended by the mean direction of the last round.

m ← β₁ m + (1−β₁) g,  v ← β₂ v + (1−β₂) g²,  u ← max(u, v)      local steps from y = x, m = 0, v = u = V
y ← y − η (α m / √u + (1−α) d)
V ← Σ w_i u_i,  d ← Σ w_i (x − y_i) / (η Σ w_i γ_i τ_i)          after the round: how far a local step moved, over γ_i η
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import aggregation, linear
from fedtrue.algorithm.adam_family import amsgrad
from fedtrue.algorithm.aggregation import WeightedSums
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import ClientOptimizer, filled
from fedtrue.algorithm.client_update import ClientParts, LocalRule
from fedtrue.algorithm.correction import none
from fedtrue.algorithm.interface import SCALE, STATE, Broadcast, Client, Context, Contribution, ServerState
from fedtrue.algorithm.method import Method, federated, received_update
from fedtrue.algorithm.move import float_type
from fedtrue.algorithm.report import Steps
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import ServerOptimizer
from fedtrue.algorithm.trace import exact
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate, PyTree


@named("method")
def fedlada(
    client_rate: LearningRate,
    alpha: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-8,
    server: ServerOptimizer = by_name("sgd"),
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Sun et al. 2023: client AMSGrad with averaged second moments, blended with the last round's mean direction.

    Args:
        client_rate: η, the clients' learning rate, a number, a schedule or a function of the round.
        alpha: α, the share of the client's own direction in a step, above 0; 1 − α is that of the last round's.
        beta1: β₁ of the momentum, which restarts in every round.
        beta2: β₂ of the squared gradients.
        epsilon: ε: V starts at ε², and no ε is added to the root.
        server: the server's optimizer, one of `ft.server`; SGD with rate 1 takes the mean of the weights.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedlada(0.01, alpha=0.1).name
    'fedlada'
    """
    check_float("fedlada: alpha", alpha, open_low=True)
    check_float("fedlada: 1 - alpha", 1 - alpha)
    check_float("fedlada: epsilon", epsilon, open_low=True)
    floor = epsilon**2
    local_steps = amsgrad(client_rate, beta1, beta2, epsilon=0.0, initial_accumulator=floor, bias_correction=False)
    moments = SecondMoments(
        init=filled(floor),
        begin=lambda params, v: {"v": v, "largest": v},
        send=lambda state: state["largest"],
    )
    return with_last_direction(_scaled(alpha, local_steps), 1 - alpha, moments, server, sampling, weighting)


class SecondMoments(NamedTuple):
    """Which second moments the server averages, and how clients begin with their mean."""

    init: Callable[[PyTree], PyTree]  # params → before the first round
    begin: Callable[[PyTree, PyTree], dict[str, PyTree]]  # (params, mean) → the optimizer's state before the first step
    send: Callable[[dict[str, PyTree]], PyTree]  # the optimizer's state after the last step → what is averaged


def with_last_direction(
    optimizer: ClientOptimizer,
    weight: Any,
    moments: SecondMoments,
    server: ServerOptimizer,
    sampling: Sampling,
    weighting: Weighting | None,
) -> Method:
    """Every local step is the optimizer's, plus `weight` times the mean direction d of the last round's steps."""

    def begin(broadcast: Broadcast) -> dict[str, Any]:
        shared = broadcast.shared
        return {"optimizer": {**moments.begin(broadcast.params, shared["second_moment"]), "count": shared["steps"]}}

    def step_term(broadcast: Broadcast) -> PyTree:
        return jax.tree.map(lambda d: weight * d, broadcast.shared["direction"])

    def report(broadcast: Broadcast, memory: Any, steps: Steps, of: Client) -> tuple[dict[str, Contribution], Any]:
        taken = jnp.asarray(of.steps, float_type(broadcast.params))
        return {
            "second_moment": Contribution(moments.send(steps.optimizer), STATE, SCALE),
            "steps": Contribution(taken, STATE, SCALE),
            "path": Contribution((of.rate_multiplier * taken).astype(taken.dtype), role=SCALE),
        }, memory

    def init_shared(params: PyTree) -> dict[str, Any]:
        no_steps, nowhere = jnp.zeros((), float_type(params)), jax.tree.map(jnp.zeros_like, params)
        return {"second_moment": moments.init(params), "steps": no_steps, "direction": nowhere}

    def receive_shared(state: ServerState, sums: WeightedSums, context: Context) -> dict[str, Any]:
        pseudo_gradient, _ = received_update(clients, state, sums)
        eta, path = optimizer.learning_rate(context.round), aggregation.mean(sums, "path")
        per_step = linear.inverse(eta * path)  # 1 / (η γ τ), 0 for a rate of 0; clients step by γ_i η d
        return {
            "second_moment": aggregation.mean(sums, "second_moment"),
            "steps": state.shared["steps"] + aggregation.mean(sums, "steps"),
            "direction": jax.tree.map(lambda d: (per_step * d).astype(d.dtype), pseudo_gradient),
        }

    rule = LocalRule(begin=begin, step_term=step_term, report=report)
    clients = ClientParts(optimizer, exact(), none(), rule=rule)
    return federated(clients, server, sampling, weighting, init_shared, receive_shared)


def _scaled(alpha: Any, optimizer: ClientOptimizer) -> ClientOptimizer:
    """The optimizer with α P in place of P."""

    def precondition(g: Any, state: Any) -> tuple[Any, Any]:
        p, state = optimizer.precondition(g, state)
        return times_alpha(p), state

    times_alpha = lambda maps: jax.tree.map(lambda p: alpha * p, maps)
    return replace(
        optimizer,
        precondition=precondition,
        preconditioner=lambda state, g: times_alpha(optimizer.preconditioner(state, g)),
    )
