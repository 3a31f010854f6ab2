"""One round at given weights x, client by client: what each would send with gradients frozen at x, and as trained.

Clients are processed one after another and only sums over them are stored; `decompose.py` turns the sums into numbers.
Weights are flattened, preconditioners are diagonal.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.client_update import ClientParts, client_update, client_work
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.interface import METHOD, OBJECTIVE, Broadcast, Context
from fedtrue.algorithm.report import TRACE, Steps
from fedtrue.algorithm.trace import Trace, exact, first_gradient
from fedtrue.data.batches import steps_per_epoch
from fedtrue.federation import Batches, Federation, batch, batches_of, loss_of
from fedtrue.lowering import Program
from fedtrue.tasks.task import Task
from fedtrue.theory.inconsistency import without_noise
from fedtrue.types import Array, Params, PyTree

REPORTED = ("mean_gradient", "intercept")  # of the gradients that a client saw
ARRAYS = ("pseudo_gradient", "mean_square", *REPORTED)  # of steps


class Point(NamedTuple):
    """The round of a run that is decomposed."""

    round_index: int
    seed: int
    orders: int  # batch orders to average over: those of the next rounds
    learning_rate: Any


class SampledClient(NamedTuple):
    """One client, with its data on the device."""

    federation: Federation  # its columns hold this client's rows
    client: Array  # its index in the federation
    memory: PyTree  # the state it has from earlier rounds
    probability: Array  # of being drawn
    draws: Array  # how often each cohort contains it


class LocalSteps(NamedTuple):
    """The result of local steps, one entry per batch order."""

    steps: Steps  # as the correction sees them, with the method's trace
    reference: Array  # N of the trace `first_gradient`: what they moved by is N times the gradient, if it is constant


class ClientAtPoint(NamedTuple):
    """Measurements of one client at x."""

    gradient: Array  # ∇F_i(x): the mean of its batch gradients
    late: Array  # ‖∇F_i(x)‖² in coordinates whose gradient in the client's first batch is 0
    term: Array  # what the method adds to every gradient, e.g. a control variate
    frozen: LocalSteps  # with every gradient evaluated at x: the limit η → 0
    moved: LocalSteps  # as in training


class Sums(NamedTuple):
    """Sums over clients. w: weight in the objective; ω: weight in a round times the probability of being drawn."""

    clients: Array
    dropped: Array
    objective: Array  # Σ w
    gradient: Array  # Σ w ∇F_i
    squares: Array  # Σ w (∇F_i)²
    late: Array  # Σ w times what clients have in coordinates that are absent from their first batch
    scatter: tuple[Array, Array, Array]  # Σ w², Σ w² ∇F_i, Σ w² ‖∇F_i‖²: for the standard error
    weight: Array  # Σ ω
    method_gradient: Array  # Σ ω ∇F_i
    ones: PyTree  # Σ ω times what clients send if every gradient is 1; one entry per batch order
    constant: PyTree  # … if every gradient is ∇F_i plus the method's term
    frozen: PyTree  # … with batch gradients at x
    moved: PyTree  # … as in training
    cohorts: PyTree  # as `moved`, per cohort, with the first batch order
    cohort_weights: Array


def measure_client(task: Task, parts: ClientParts, point: Point) -> Callable[[Broadcast, SampledClient], ClientAtPoint]:
    """`(broadcast, sampled)` → the measurements of the client at the broadcast weights."""
    noiseless_loss, both = without_noise(task).loss, both_traces(first_gradient(), parts.trace)
    rule = parts.rule._replace(report=None, needs_trace=True, needs_gradient_at_start=False, needs_mean_gradient=False)
    rule = rule._replace(step_term=None)  # it consists of gradients of earlier rounds
    measured_parts = ClientParts(parts.optimizer, both, send_everything(parts.correction), parts.client_state, rule)

    def measure(broadcast: Broadcast, sampled: SampledClient) -> ClientAtPoint:
        x = broadcast.params
        federation = sampled.federation
        client = federation.client(sampled.client, point.learning_rate)
        memory = _with_both_traces(sampled.memory, parts, measured_parts, x)
        batches_in = lambda order: batches_of(federation, sampled.client, point.seed, point.round_index + order)

        def local_steps(loss: Callable[..., Any], order: Array) -> LocalSteps:
            work = client_work(loss_of(task, federation, x, loss), measured_parts)
            batches, context = batches_in(order), Context(point.round_index, jax.random.key(0), len(federation), 1)
            output = client_update(work, broadcast, client, memory, lambda k: batch(federation, batches, k), context)
            sent = {name: contribution.value for name, contribution in output.contributions.items()}
            flat_trace = lambda n: _flat(_in_shape_of(x, n))
            traces, arrays = sent[TRACE], {name: _flat(sent[name]) for name in ARRAYS if name in sent}
            as_float = lambda number: jnp.asarray(number, jnp.result_type(float))
            numbers = {"learning_rate": as_float(client.learning_rate), "count": as_float(client.steps)}
            steps = Steps(**arrays, **numbers, trace=flat_trace(traces["used"]))
            return LocalSteps(steps, flat_trace(traces["reference"]))

        orders = jnp.arange(point.orders)
        batch_gradient = lambda order, k: _batch_gradient(noiseless_loss, federation, batches_in(order), k, x)
        epoch_gradient = lambda order: _epoch_gradient(batch_gradient, federation, batches_in(order), order, x)
        gradient = jnp.mean(jax.lax.map(epoch_gradient, orders), axis=0)
        late = lambda order: jnp.sum(jnp.where(batch_gradient(order, 0) == 0, gradient**2, 0))
        rule_memory = memory["rule"] if parts.rule.init_memory else ()
        term = _flat(parts.rule.term(broadcast, rule_memory)) if parts.rule.term else jnp.zeros_like(_flat(x))
        return ClientAtPoint(
            gradient,
            jnp.mean(jax.lax.map(late, orders)),
            term,
            jax.lax.map(lambda order: local_steps(frozen_at(x, task.loss), order), orders),
            jax.lax.map(lambda order: local_steps(task.loss, order), orders),
        )

    return measure


def without_momentum(parts: ClientParts, broadcast: Broadcast) -> Broadcast:
    """The broadcast without the momentum that clients start with: it consists of gradients of earlier rounds."""
    if parts.rule.begin is None or "move" not in parts.rule.begin(broadcast):
        return broadcast
    return broadcast._replace(shared={**broadcast.shared, "move": parts.optimizer.move.init(broadcast.params)})


def frozen_at(x: Params, loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss that is linear in the weights; its gradient everywhere is that of `loss` at x."""

    def linear_loss(params: Params, batch: Any) -> tuple[Any, Any]:
        gradient, sums = jax.grad(loss, has_aux=True)(x, batch)
        return sum(jnp.vdot(g, p) for g, p in zip(jax.tree.leaves(gradient), jax.tree.leaves(params))), sums

    return linear_loss


def send_everything(correction: Correction) -> Correction:
    """Sends all that a correction looks at, and the traces, for use without aggregation."""

    def send(steps: Steps) -> dict[str, PyTree]:
        arrays = {name: getattr(steps, name) for name in ARRAYS}
        return {TRACE: steps.trace, **{name: tree for name, tree in arrays.items() if tree is not None}}

    return Correction(send, correction.receive, needs=correction.needs | {TRACE})


def both_traces(reference: Trace, used: Trace) -> Trace:
    """Two traces of the same steps, as one trace."""
    traces = {"reference": reference, "used": used}
    per_trace = lambda call: {name: call(name, trace) for name, trace in traces.items()}
    return Trace(
        init_memory=lambda optimizer, params, pulled: per_trace(lambda _, t: t.init_memory(optimizer, params, pulled)),
        init=lambda optimizer, params, state, memory: per_trace(
            lambda i, t: t.init(optimizer, params, state, memory[i])
        ),
        update=lambda optimizer, step, n: per_trace(lambda i, t: t.update(optimizer, step, n[i])),
        total=lambda n: per_trace(lambda i, t: t.total(n[i])),
        keep=lambda n: per_trace(lambda i, t: t.keep(n[i])),
    )


def client_sums(
    parts: ClientParts, point: Point, sampled: SampledClient, at: ClientAtPoint, table: Array | None
) -> Sums:
    """One client's contribution to the sums; if a number in it is not finite, it only counts as dropped."""
    send = jax.vmap(parts.correction.send)
    n, rate = at.frozen.reference, point.learning_rate
    moved = send(at.moved.steps)
    if parts.correction.table:  # r_i − h_i + c: its mean over a cohort is what the server makes of the changes
        name, last = parts.correction.table, _flat(sampled.memory["reported"])
        moved = {**moved, name: moved[name] - last + table}
    weights = sampled.federation.weights
    w, weight = weights[OBJECTIVE][sampled.client], weights[METHOD][sampled.client]
    omega, g = weight * sampled.probability, at.gradient
    scaled = lambda factor, tree: jax.tree.map(lambda leaf: factor * leaf, tree)
    cohort_weights = sampled.draws * weight
    sums = Sums(
        clients=jnp.ones(()),
        dropped=jnp.zeros(()),
        objective=w,
        gradient=w * g,
        squares=w * g**2,
        late=w * at.late,
        scatter=(w**2, w**2 * g, w**2 * jnp.vdot(g, g)),
        weight=omega,
        method_gradient=omega * g,
        ones=scaled(omega, send(with_gradient(at.frozen.steps, jnp.ones_like(g), rate * n))),
        constant=scaled(omega, send(with_gradient(at.frozen.steps, g, rate * n * (g + at.term)))),
        frozen=scaled(omega, send(at.frozen.steps)),
        moved=scaled(omega, moved),
        cohorts=jax.tree.map(lambda leaf: jnp.multiply.outer(cohort_weights, leaf[0]), moved),
        cohort_weights=cohort_weights,
    )
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(at)]).all()
    finite_sums = jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0), sums)
    return finite_sums._replace(dropped=1.0 - finite_sums.clients)


def with_gradient(steps: Steps, gradient: Array, pseudo_gradient: Array) -> Steps:
    """The steps if every gradient had been this one, with the same preconditioners and squares."""
    seen = {name: getattr(steps, name) for name in REPORTED}
    given = {name: jnp.broadcast_to(gradient, array.shape) for name, array in seen.items() if array is not None}
    return steps._replace(pseudo_gradient=pseudo_gradient, **given)


def implicit_weight(at: ClientAtPoint) -> Array:
    """n_i = ∇F_iᵀ N_i ∇F_i / ‖∇F_i‖², the factor on the client's gradient; the mean of N_i if the gradient is 0."""
    n, squares = jnp.mean(at.frozen.reference, axis=0), at.gradient**2
    total = jnp.sum(squares)
    return jnp.where(total > 0, jnp.sum(n * squares) / jnp.where(total > 0, total, 1), jnp.mean(n))


def sum_over_clients(
    task: Task,
    parts: ClientParts,
    point: Point,
    broadcast: Broadcast,
    clients: Iterable[SampledClient],
    table: Array | None,
) -> tuple[Sums, np.ndarray]:
    """The sums over all clients, and their implicit weights n_i, with one compilation; `table`: the server's c."""
    measure = measure_client(task, parts, point)

    def sums_and_weight(broadcast: Broadcast, sampled: SampledClient) -> tuple[Sums, Array]:
        measured = measure(broadcast, sampled)
        return client_sums(parts, point, sampled, measured, table), implicit_weight(measured)

    def add(sums: Sums, broadcast: Broadcast, sampled: SampledClient) -> tuple[Sums, Array]:
        more, weight = sums_and_weight(broadcast, sampled)
        return jax.tree.map(jnp.add, sums, more), weight

    add_in_place = Program(add, donate_argnums=(0,))  # the sums of the cohorts take most of the memory
    sums, weights = None, []
    for sampled in clients:
        if sums is None:
            shapes = jax.eval_shape(sums_and_weight, broadcast, sampled)[0]
            sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        sums, weight = add_in_place(sums, broadcast, sampled)
        weights.append(float(weight))
    assert sums is not None, "a federation has at least one client"
    return jax.tree.map(np.asarray, sums), np.asarray(weights)


def _batch_gradient(loss: Any, federation: Federation, batches: Batches, k: Any, x: Params) -> Array:
    return _flat(jax.grad(loss, has_aux=True)(x, batch(federation, batches, k))[0])


def _epoch_gradient(gradient: Any, federation: Federation, batches: Batches, order: Any, x: Params) -> Array:
    """The mean of the batch gradients at x over one epoch."""
    count = steps_per_epoch(batches.size, federation.batch_size)
    add = lambda k, total: total + gradient(order, k)
    return jax.lax.fori_loop(0, count, add, jnp.zeros_like(_flat(x))) / count


def _with_both_traces(memory: PyTree, parts: ClientParts, measured_parts: ClientParts, x: Params) -> PyTree:
    """A client's memory with the state of both traces; the checkpoint has that of the run's trace, if it uses one."""
    if parts.client_state != "inherit" or not memory:
        return memory
    traces = measured_parts.trace.init_memory(parts.optimizer, x, parts.rule.pull is not None)
    if parts.traced:
        own = memory["own"]["trace"]
        traces = {**traces, "used": own}
        if parts.trace == first_gradient():
            traces["reference"] = own
        elif parts.trace == exact():
            traces["reference"] = {"memory": own, "ones": own} if parts.optimizer.adaptive else own
    return {**memory, "own": {**memory["own"], "trace": traces}}


def flat_state(state: PyTree, params: Params) -> PyTree:
    """What a correction keeps of earlier rounds, as if the weights were one vector."""
    structure = jax.tree.structure(params)
    like_params = lambda node: bool(structure == jax.tree.structure(node))  # type: ignore[operator]
    flat = lambda node: _flat(_in_shape_of(params, node)) if like_params(node) else node
    return jax.tree.map(flat, state, is_leaf=like_params)


def _in_shape_of(params: Params, tree: PyTree) -> PyTree:
    """A tree with an array for every weight, of which some may be given as one number per leaf."""
    return jax.tree.map(lambda weights, leaf: jnp.broadcast_to(leaf, weights.shape), params, tree)


def _flat(tree: PyTree) -> Array:
    return ravel_pytree(tree)[0]
