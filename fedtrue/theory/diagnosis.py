"""One round at given weights x, taken apart: the true gradient, and everything that bends it.

    E[pseudo-gradient] = η D ∇F  +  weighting  +  bias  +  noise  +  drift  +  cohorts

    η D ∇F      the truth at the method's own scale: D is the method fed with ones in place of all gradients
    weighting   the run's client weights are not the objective's
    bias        clients enter with weights W_i that differ: η Σ w_i (W_i − D) ∇F_i; without correction W_i = N_i
    noise       a preconditioner meets the gradient it was made of: what batches do at x beyond their mean gradient
    drift       clients move while they step; it vanishes with η
    cohorts     a cohort's pseudo-gradient is a ratio of two sums, and the mean of ratios is not the ratio of means

Clients are visited one after another and only sums are kept; `anatomy.py` makes numbers of them. Weights are flattened,
preconditioners diagonal.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import client_update, client_work
from fedtrue.algorithm.correction import CORRECTIONS, Correction
from fedtrue.algorithm.sampling import Sampling, uniform
from fedtrue.algorithm.server_optimizer import ServerState
from fedtrue.algorithm.trace import TRACES, Trace
from fedtrue.data.batches import batch_at, client_key, epoch_orders, steps_per_epoch
from fedtrue.tasks.task import Task
from fedtrue.theory.inconsistency import without_noise

Pair = tuple[Any, Any]  # (y, z): every correction's pseudo-gradient is a ratio Σ y / Σ z


class Parts(NamedTuple):
    """What a method's clients do, in the pieces that are taken apart."""

    optimizer: ClientOptimizer
    correction: str
    trace: str
    client_state: str


class Setting(NamedTuple):
    """What the compilation depends on, and where in the run we are."""

    largest: int  # examples of a client
    epochs: int
    seed: int
    round_index: int
    orders: int  # batch orders that expectations are taken over: those of the next rounds


class Visited(NamedTuple):
    """One client: its data on the device, and one number each of what differs between clients."""

    columns: Any
    start: Any
    client: Any
    size: Any
    steps: Any
    rate_multiplier: Any  # γ_i
    memory: Any  # what `inherit` kept
    objective_weight: Any  # w_i of the objective
    weight: Any  # of its update in a round
    probability: Any  # of being drawn
    drawn: Any  # how often, by each cohort


class Steps(NamedTuple):
    """Where local steps led, and what the preconditioners added up to, by the trace's name."""

    pseudo_gradient: Any  # Δ
    traces: dict[str, Any]  # N


class AtClient(NamedTuple):
    """A client at x; steps have one entry an order."""

    gradient: Any  # ∇F_i(x): the mean of its batches' gradients
    frozen: Steps  # every gradient taken at x: the limit η → 0
    moved: Steps  # as in training


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
    ones: Any  # y of steps at x fed with ones, one entry an order
    constant: Any  # fed with ∇F_i at every step
    frozen: Pair  # fed with the batches' gradients; z is that of all three
    moved: Pair
    cohorts: Pair  # one entry a cohort, all with the first order


def visit(task: Task, parts: Parts, setting: Setting, learning_rate: Any) -> Callable[[ServerState, Visited], AtClient]:
    """`(server, client)` → the client at the server's weights."""
    traces = {name: TRACES[name]() for name in ("exact", parts.trace)}
    quiet_loss = without_noise(task).loss

    def at(server: ServerState, one: Visited) -> AtClient:
        x = server.params

        def walk(loss: Callable[..., Any], order: Any) -> Steps:
            work = client_work(loss, parts.optimizer, together(traces), bare(), parts.client_state)
            batch = _batches(task, setting, one, order)
            memory = _with_traces(one.memory, parts, traces, x)
            no_sums = _zeros(jax.eval_shape(lambda: loss(x, batch(0))[1]))
            rates = (learning_rate, one.rate_multiplier)
            sent = client_update(work, server, one.client, memory, no_sums, batch, one.steps, *rates).contribution
            n = {name: _spread_over(x, trace) for name, trace in sent["correction"]["traces"].items()}
            return Steps(_flat(sent["correction"]["pseudo_gradient"]), n)

        orders = jnp.arange(setting.orders)
        gradients = jax.lax.map(lambda order: _epoch_gradient(task, quiet_loss, setting, one, x, order), orders)
        frozen = jax.lax.map(lambda order: walk(standing_at(x, task.loss), order), orders)
        moved = jax.lax.map(lambda order: walk(task.loss, order), orders)
        return AtClient(jnp.mean(gradients, axis=0), frozen, moved)

    return at


def standing_at(x: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss that is linear in its params, its gradient everywhere `loss`'s at x."""

    def linear_loss(params: Any, batch: Any) -> tuple[Any, Any]:
        gradient, sums = jax.grad(loss, has_aux=True)(x, batch)
        return sum(jnp.vdot(g, p) for g, p in zip(jax.tree.leaves(gradient), jax.tree.leaves(params))), sums

    return linear_loss


def bare() -> Correction:
    """Sends Δ and N themselves; nobody adds them up."""
    return Correction(True, lambda pseudo_gradient, n: {"pseudo_gradient": pseudo_gradient, "traces": n}, lambda m: m)


def together(traces: dict[str, Trace]) -> Trace:
    """Several traces of the same steps, by name."""

    def each(function: str, *arguments: Any, of: Any = None) -> dict[str, Any]:
        own = lambda name: () if of is None else (of[name],)
        return {name: getattr(trace, function)(*arguments, *own(name)) for name, trace in traces.items()}

    return Trace(
        rest=lambda optimizer, params: each("rest", optimizer, params),
        init=lambda optimizer, params, state, kept: each("init", optimizer, params, state, of=kept),
        update=lambda optimizer, p, state, n: each("update", optimizer, p, state, of=n),
        total=lambda n: each("total", of=n),
        keep=lambda n: each("keep", of=n),
    )


def ratio(correction: Correction, pseudo_gradient: Any, n: Any) -> Pair:
    """(y, z) of one client: what its update is divided by is sent along by `joint`, and 1 else."""
    sent = correction.send(pseudo_gradient, n)
    return sent["update"], sent.get("inverse_trace", jnp.ones_like(n[:1]))


def sums_of(parts: Parts, learning_rate: Any, one: Visited, at: AtClient) -> Sums:
    """One client's part of the sums: nothing but a count if a number in it is not finite."""
    correction = CORRECTIONS[parts.correction]()
    ratios = jax.vmap(lambda pseudo_gradient, n: ratio(correction, pseudo_gradient, n))
    n, used = at.frozen.traces["exact"], at.frozen.traces[parts.trace]
    moved = ratios(at.moved.pseudo_gradient, at.moved.traces[parts.trace])
    w, omega, g = one.objective_weight, one.weight * one.probability, at.gradient
    by = lambda factor, pair: tuple(factor * part for part in pair)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(at)]).all()
    sums = Sums(
        clients=jnp.ones(()),
        dropped=jnp.zeros(()),
        objective=w,
        gradient=w * g,
        squares=w * g**2,
        scatter=(w**2, w**2 * g, w**2 * jnp.vdot(g, g)),
        weight=omega,
        method_gradient=omega * g,
        ones=omega * ratios(learning_rate * n, used)[0],
        constant=omega * ratios(learning_rate * n * g, used)[0],
        frozen=by(omega, ratios(at.frozen.pseudo_gradient, used)),
        moved=by(omega, moved),
        cohorts=by(one.drawn[:, None] * one.weight, (moved[0][0], moved[1][0])),
    )
    kept = jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0), sums)
    return kept._replace(dropped=1.0 - kept.clients)


def implicit_weight(at: AtClient) -> Any:
    """n_i = ∇F_iᵀ N_i ∇F_i / ‖∇F_i‖², the factor on the client's own gradient; N_i's mean where that is 0."""
    n, squares = jnp.mean(at.frozen.traces["exact"], axis=0), at.gradient**2
    total = jnp.sum(squares)
    return jnp.where(total > 0, jnp.sum(n * squares) / jnp.where(total > 0, total, 1), jnp.mean(n))


def add_up(
    task: Task, parts: Parts, setting: Setting, learning_rate: float, server: ServerState, clients: Iterable[Visited]
) -> tuple[Sums, np.ndarray]:
    """The sums over all clients, and their implicit weights n_i; one compilation."""
    at = visit(task, parts, setting, learning_rate)

    def of_one(server: ServerState, one: Visited) -> tuple[Sums, Any]:
        found = at(server, one)
        return sums_of(parts, learning_rate, one, found), implicit_weight(found)

    def add(sums: Sums, server: ServerState, one: Visited) -> tuple[Sums, Any]:
        more, weight = of_one(server, one)
        return jax.tree.map(jnp.add, sums, more), weight

    add_one = jax.jit(add, donate_argnums=0)  # in place: the cohorts' sums are the largest thing there is
    sums, weights = None, []
    for one in clients:
        if sums is None:
            sums = _zeros(jax.eval_shape(of_one, server, one)[0])
        sums, weight = add_one(sums, server, one)
        weights.append(float(weight))
    assert sums is not None, "a federation has at least one client"
    return jax.tree.map(np.asarray, sums), np.asarray(weights)


def draw_cohorts(
    sample: Sampling, sizes: np.ndarray, cohort: int, most: int, seed: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """(how often each cohort draws each client, a client's chance in one draw, whether these are all the cohorts)."""
    clients = len(sizes)
    evenly = sample is uniform
    everything = evenly and math.comb(clients, cohort) <= most
    if everything:
        chosen = np.array(list(itertools.combinations(range(clients), cohort)))
    else:
        keys = jax.random.split(jax.random.key(seed), most)
        chosen = np.asarray(jax.vmap(lambda key: sample(key, jnp.asarray(sizes), cohort))(keys))
    drawn = np.zeros((len(chosen), clients))
    np.add.at(drawn, (np.arange(len(chosen))[:, None], chosen), 1)
    return drawn, np.full(clients, 1 / clients) if evenly else sizes / sizes.sum(), everything


def _batches(task: Task, setting: Setting, one: Visited, order: Any) -> Callable[[Any], Any]:
    """The batches of the round `order` rounds from now."""
    key = client_key(setting.seed, setting.round_index + order, one.client)
    orders = epoch_orders(key, one.size, setting.largest, setting.epochs, task.shuffle)
    return lambda k: batch_at(one.columns, one.start, one.size, orders, k, task.batch_size, key)


def _epoch_gradient(task: Task, loss: Any, setting: Setting, one: Visited, x: Any, order: Any) -> Any:
    """The mean of the batch gradients at x over one epoch."""
    batch, count = _batches(task, setting, one, order), steps_per_epoch(one.size, task.batch_size)
    gradient = lambda k: _flat(jax.grad(loss, has_aux=True)(x, batch(k))[0])
    return jax.lax.fori_loop(0, count, lambda k, total: total + gradient(k), jnp.zeros_like(_flat(x))) / count


def _with_traces(memory: Any, parts: Parts, traces: dict[str, Trace], x: Any) -> Any:
    """A client's memory with the traces' share of it: the run kept that of its own trace, if it had one."""
    if parts.client_state != "inherit":
        return ()
    rest = together(traces).rest(parts.optimizer, x)
    kept = {parts.trace: memory["trace"]} if CORRECTIONS[parts.correction]().needs_trace else {}
    return {**memory, "trace": {**rest, **kept}}


def _spread_over(x: Any, trace: Any) -> Any:
    """N as one vector: SGD's is the number of steps in every coordinate."""
    return _flat(jax.tree.map(lambda leaf, n: jnp.broadcast_to(n, leaf.shape), x, trace))


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _flat(tree: Any) -> Any:
    return ravel_pytree(tree)[0]
