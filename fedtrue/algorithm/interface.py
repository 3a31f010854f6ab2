"""The interface that everything federates through: simulation, theory, diagnosis, deployment.

    server ── broadcast ──▶ client: start, step, …, finish ── contributions ──▶ weighted sums ── receive ──▶ server

A round is one or more phases. A phase samples a cohort, broadcasts, lets every client of the cohort work, sums what
they contribute, and hands the sums to the server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax

from fedtrue.algorithm.accumulation import accumulated_gradient
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.sampling import Sampling

METHOD = "method"  # weigh a contribution as the method weighs its clients
OBJECTIVE = "objective"  # by the client's share of the task's objective: the shares of all clients sum to 1
UNIFORM = "uniform"  # count every client once
WEIGHTINGS = (METHOD, OBJECTIVE, UNIFORM)
STATE = "state"  # as METHOD, and always divided by the weights of those that sent it: a state of the server is replaced
# by a mean of clients' states, which an estimate of a sum (fixed denominators, probabilities) would scale at random

UPDATE = "update"  # a contribution that compression may make sparse
SCALE = "scale"  # one whose entries are no less than 0 and by which others are divided: never sparse, never negative
EXACT = "exact"  # one that is sent as it is


class Client(NamedTuple):
    """What a client knows of itself."""

    index: Any  # its place in the federation
    steps: Any  # τ_i
    learning_rate: Any  # η of this round; the client steps with γ_i η
    rate_multiplier: Any  # γ_i


class ServerState(NamedTuple):
    """All the server knows between two rounds."""

    params: Any  # x, the weights
    optimizer: Any  # the server optimizer's state
    shared: Any  # what a method keeps besides and shares with its clients: control variates, statistics; () for most
    correction: Any = ()  # what the correction keeps between rounds, e.g. averages over rounds; it stays at the server
    sampling: Any = ()  # what the sampling keeps between rounds, e.g. a threshold; () for most


class Broadcast(NamedTuple):
    """What travels down."""

    params: Any  # x, the server's weights
    shared: Any  # as in the server's state


@partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["weighting", "role"])
@dataclass(frozen=True)
class Contribution:
    """A tree that is summed over the cohort, each client's with its weight: METHOD, OBJECTIVE, UNIFORM or STATE."""

    value: Any  # a tree of arrays
    weighting: str = METHOD  # METHOD, OBJECTIVE, UNIFORM or STATE
    role: str = UPDATE  # UPDATE, SCALE or EXACT: what compression and noise may do to it


class ClientOutput(NamedTuple):
    """What leaves a client."""

    contributions: dict[str, Contribution]  # by name; summed over the cohort
    metric_sums: Any  # of its batches: to be added
    memory: Any  # goes back into the client store; () for a client that keeps nothing
    finite: Any  # False: the client is dropped and counted
    score: Any = None  # a number that the sampling of a later phase may look at; its bytes are counted


class Loss(NamedTuple):
    """A loss of one batch, and its metric sums before the first."""

    function: Callable[[Any, Any], tuple[Any, Any]]  # (params, batch) → (scalar, metric sums)
    no_sums: Any  # zeros in the shape of its metric sums
    accumulate: int = 1  # parts into which a batch is split; their gradients are accumulated
    summed: bool = False  # the loss is a sum over the examples, not their mean

    def gradient(self, params: Any, batch: Any) -> tuple[tuple[Any, Any], Any]:
        """((scalar, metric sums), gradient)."""
        gradient_of = jax.value_and_grad(self.function, has_aux=True)
        if self.accumulate == 1:
            return gradient_of(params, batch)
        return accumulated_gradient(gradient_of, params, batch, self.accumulate, self.summed)

    def value(self, params: Any, batch: Any) -> tuple[Any, Any]:
        """(scalar, metric sums)."""
        if self.accumulate == 1:
            return self.function(params, batch)
        without_gradient = lambda params, batch: (self.function(params, batch), ())
        return accumulated_gradient(without_gradient, params, batch, self.accumulate, self.summed)[0]


class ClientWork(NamedTuple):
    """One client's part of a phase. It knows nothing of lanes, devices or networks."""

    init_memory: Callable[[Broadcast, Any], Any]  # (broadcast, client index) → memory of one that never took part
    start: Callable[[Broadcast, Client, Any], Any]  # (broadcast, client, memory) → state
    step: Callable[[Broadcast, Any, Any, Any], Any]  # (broadcast, state, batch, learning rate γ_i η) → state
    finish: Callable[[Broadcast, Any, Client, Context], ClientOutput]  # (broadcast, state, client, context)


def send_all(server: ServerState, context: Context) -> Broadcast:
    """The weights, and all that the server shares."""
    return Broadcast(server.params, server.shared)


class Phase(NamedTuple):
    """One exchange of a round."""

    work: Callable[[Loss], ClientWork]  # the task's loss → one client's part
    receive: Callable[[ServerState, Any, Context], tuple[ServerState, Any]]  # sums → (server, pseudo-gradient used)
    broadcast: Callable[[ServerState, Context], Broadcast] = send_all  # what travels down; its bytes are counted
    sampling: Sampling | None = None  # None: the cohort of the phase before; the first phase has the method's
    cohort: int | None = None  # clients, where it samples; None: the run's cohort
    steps: Callable[[Any, Any], Any] | None = None  # (τ_i, batches per epoch) → steps, where it samples; None: τ_i
    combine: Callable[[Any, Any], Any] | None = None
    """(contributions with a row per place, who sent them) → one contribution in place of their mean; None: the mean"""
    receives_nothing: bool = False  # whether the server steps if nobody has sent anything
