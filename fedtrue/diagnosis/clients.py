"""One round at given weights x, client by client: what each would send, with its gradients frozen at x and as trained.

Clients are visited one after another and only sums over them are kept; `decompose.py` turns the sums into numbers.
Weights are flattened, preconditioners diagonal.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.client_update import FIXED, ClientParts, client_update, client_work
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import METHOD, OBJECTIVE, Broadcast, Context
from fedtrue.algorithm.trace import Trace, exact
from fedtrue.data.batches import steps_per_epoch
from fedtrue.federation import Batches, Federation, batch, batches_of, loss_of
from fedtrue.tasks.task import Task
from fedtrue.theory.inconsistency import without_noise


class Point(NamedTuple):
    """Where in a run the round is taken apart."""

    round_index: int
    seed: int
    orders: int  # batch orders that expectations are taken over: those of the next rounds
    learning_rate: Any


class VisitedClient(NamedTuple):
    """One client, its data on the device."""

    federation: Federation  # its columns hold this client's rows
    index: Any
    memory: Any  # what it kept from earlier rounds
    probability: Any  # of being drawn
    draws: Any  # how often it is in each of the cohorts


class LocalSteps(NamedTuple):
    """Where local steps led, and what the preconditioners added up to, one entry per order."""

    pseudo_gradient: Any  # Δ
    exact: Any  # N of the exact trace
    used: Any  # N of the method's own


class ClientAtPoint(NamedTuple):
    """A client at x."""

    gradient: Any  # ∇F_i(x): the mean of its batches' gradients
    term: Any  # what the method adds to every gradient: a control variate
    frozen: LocalSteps  # every gradient taken at x: the limit η → 0
    moved: LocalSteps  # as in training


class Sums(NamedTuple):
    """Over clients; w is the objective's weight, ω the method's: the weight in a round times the chance to be drawn."""

    clients: Any
    dropped: Any
    objective: Any  # Σ w, and below Σ w ∇F_i
    gradient: Any
    squares: Any  # Σ w (∇F_i)²
    scatter: tuple[Any, Any, Any]  # Σ w², Σ w² ∇F_i, Σ w² ‖∇F_i‖²: for the standard error
    weight: Any  # Σ ω, and below Σ ω ∇F_i
    method_gradient: Any
    ones: Any  # what clients send after steps at x that are fed with ones; one entry per order
    constant: Any  # … with ∇F_i and the method's term at every step
    frozen: Any  # … with the batches' gradients at x
    moved: Any  # … as in training
    cohorts: Any  # the same for each cohort, all with the first order
    cohort_weights: Any


def visit(task: Task, parts: ClientParts, point: Point) -> Callable[[Broadcast, VisitedClient], ClientAtPoint]:
    """`(broadcast, client)` → the client at the broadcast weights."""
    quiet_loss, both = without_noise(task).loss, side_by_side(exact(), parts.trace)
    rule = parts.rule._replace(report=None, needs_trace=True, needs_gradient_at_start=False)
    walking = ClientParts(parts.optimizer, both, as_they_are(), parts.client_state, rule)

    def at(broadcast: Broadcast, one: VisitedClient) -> ClientAtPoint:
        x = broadcast.params
        client = one.federation.client(one.index, point.learning_rate)
        memory = _with_both_traces(one.memory, parts, walking, x)
        of_order = lambda order: batches_of(one.federation, one.index, point.seed, point.round_index + order)

        def steps(function: Callable[..., Any], order: Any) -> LocalSteps:
            work = client_work(loss_of(task, one.federation, x, function), walking)
            own, context = of_order(order), Context(point.round_index, jax.random.key(0), len(one.federation), 1)
            output = client_update(work, broadcast, client, memory, lambda k: batch(one.federation, own, k), context)
            sent = {name: contribution.value for name, contribution in output.contributions.items()}
            spread = lambda n: _flat(jax.tree.map(lambda leaf, n: jnp.broadcast_to(n, leaf.shape), x, n))
            return LocalSteps(_flat(sent["pseudo_gradient"]), spread(sent["exact"]), spread(sent["used"]))

        orders = jnp.arange(point.orders)
        gradient = lambda order: _epoch_gradient(task, quiet_loss, one.federation, of_order(order), x)
        kept = memory["rule"] if parts.rule.init_memory else ()
        term = _flat(parts.rule.term(broadcast, kept)) if parts.rule.term else jnp.zeros_like(_flat(x))
        return ClientAtPoint(
            jnp.mean(jax.lax.map(gradient, orders), axis=0),
            term,
            jax.lax.map(lambda order: steps(frozen_at(x, task.loss), order), orders),
            jax.lax.map(lambda order: steps(task.loss, order), orders),
        )

    return at


def without_momentum(parts: ClientParts, broadcast: Broadcast) -> Broadcast:
    """Mime's clients start with the server's momentum, gradients of earlier rounds: it is left out."""
    if parts.client_state != FIXED:
        return broadcast
    return broadcast._replace(shared={**broadcast.shared, "move": parts.optimizer.move.init(broadcast.params)})


def frozen_at(x: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss that is linear in its params, its gradient everywhere `loss`'s at x."""

    def linear_loss(params: Any, batch: Any) -> tuple[Any, Any]:
        gradient, sums = jax.grad(loss, has_aux=True)(x, batch)
        return sum(jnp.vdot(g, p) for g, p in zip(jax.tree.leaves(gradient), jax.tree.leaves(params))), sums

    return linear_loss


def as_they_are() -> Correction:
    """Sends Δ and both traces; nobody adds them up."""
    return Correction(
        True, lambda pseudo_gradient, n: {"pseudo_gradient": pseudo_gradient, **n}, lambda mean: mean["pseudo_gradient"]
    )


def side_by_side(exact_trace: Trace, used: Trace) -> Trace:
    """Two traces of the same steps."""
    traces = {"exact": exact_trace, "used": used}
    each = lambda call: {name: call(name, trace) for name, trace in traces.items()}
    return Trace(
        init_memory=lambda optimizer, params, pulled: each(lambda _, t: t.init_memory(optimizer, params, pulled)),
        init=lambda optimizer, params, state, kept: each(lambda i, t: t.init(optimizer, params, state, kept[i])),
        update=lambda optimizer, p, state, n, pull: each(lambda i, t: t.update(optimizer, p, state, n[i], pull)),
        total=lambda n: each(lambda i, t: t.total(n[i])),
        keep=lambda n: each(lambda i, t: t.keep(n[i])),
    )


def sums_of(parts: ClientParts, point: Point, one: VisitedClient, at: ClientAtPoint) -> Sums:
    """One client's part of the sums: nothing but a count if a number in it is not finite."""
    send = jax.vmap(parts.correction.send)
    n, used, rate = at.frozen.exact, at.frozen.used, point.learning_rate
    moved = send(at.moved.pseudo_gradient, at.moved.used)
    w, weight = one.federation.weights[OBJECTIVE][one.index], one.federation.weights[METHOD][one.index]
    omega, g = weight * one.probability, at.gradient
    by = lambda factor, tree: jax.tree.map(lambda leaf: factor * leaf, tree)
    drawn = one.draws * weight
    sums = Sums(
        clients=jnp.ones(()),
        dropped=jnp.zeros(()),
        objective=w,
        gradient=w * g,
        squares=w * g**2,
        scatter=(w**2, w**2 * g, w**2 * jnp.vdot(g, g)),
        weight=omega,
        method_gradient=omega * g,
        ones=by(omega, send(rate * n, used)),
        constant=by(omega, send(rate * n * (g + at.term), used)),
        frozen=by(omega, send(at.frozen.pseudo_gradient, used)),
        moved=by(omega, moved),
        cohorts=jax.tree.map(lambda leaf: drawn[:, None] * leaf[0], moved),
        cohort_weights=drawn,
    )
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(at)]).all()
    kept = jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0), sums)
    return kept._replace(dropped=1.0 - kept.clients)


def implicit_weight(at: ClientAtPoint) -> Any:
    """n_i = ∇F_iᵀ N_i ∇F_i / ‖∇F_i‖², the factor on the client's own gradient; N_i's mean where that is 0."""
    n, squares = jnp.mean(at.frozen.exact, axis=0), at.gradient**2
    total = jnp.sum(squares)
    return jnp.where(total > 0, jnp.sum(n * squares) / jnp.where(total > 0, total, 1), jnp.mean(n))


def add_up(
    task: Task, parts: ClientParts, point: Point, broadcast: Broadcast, clients: Iterable[VisitedClient]
) -> tuple[Sums, np.ndarray]:
    """The sums over all clients, and their implicit weights n_i; one compilation."""
    at = visit(task, parts, point)

    def of_one(broadcast: Broadcast, one: VisitedClient) -> tuple[Sums, Any]:
        found = at(broadcast, one)
        return sums_of(parts, point, one, found), implicit_weight(found)

    def add(sums: Sums, broadcast: Broadcast, one: VisitedClient) -> tuple[Sums, Any]:
        more, weight = of_one(broadcast, one)
        return jax.tree.map(jnp.add, sums, more), weight

    add_one = jax.jit(add, donate_argnums=0)  # in place: the cohorts' sums are the largest thing there is
    sums, weights = None, []
    for one in clients:
        if sums is None:
            shapes = jax.eval_shape(of_one, broadcast, one)[0]
            sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        sums, weight = add_one(sums, broadcast, one)
        weights.append(float(weight))
    assert sums is not None, "a federation has at least one client"
    return jax.tree.map(np.asarray, sums), np.asarray(weights)


def _epoch_gradient(task: Task, loss: Any, federation: Federation, own: Batches, x: Any) -> Any:
    """The mean of the batch gradients at x over one epoch."""
    count = steps_per_epoch(own.size, task.batch_size)
    gradient = lambda k: _flat(jax.grad(loss, has_aux=True)(x, batch(federation, own, k))[0])
    return jax.lax.fori_loop(0, count, lambda k, total: total + gradient(k), jnp.zeros_like(_flat(x))) / count


def _with_both_traces(memory: Any, parts: ClientParts, walking: ClientParts, x: Any) -> Any:
    """A client's memory with both traces' share of it: the run kept that of its own trace, if it had one."""
    if parts.client_state != "inherit" or not memory:
        return memory
    kept = walking.trace.init_memory(parts.optimizer, x, parts.rule.pull is not None)
    if parts.traced:
        kept = {**kept, "used": memory["own"]["trace"]}
        if parts.trace == exact():
            kept["exact"] = memory["own"]["trace"]
    return {**memory, "own": {**memory["own"], "trace": kept}}


def _flat(tree: Any) -> Any:
    return ravel_pytree(tree)[0]
