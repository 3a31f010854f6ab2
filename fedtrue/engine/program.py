"""The compiled program: many rounds, each a cohort trained on lanes.

Between two moments at which some lane takes up its next client, all lanes step together in one loop without a branch;
at such a moment the finished lanes deposit their outputs into the weighted sums and start anew from the server.
Memory is lanes × (params + optimizer state + trace), whatever the cohort.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from fedtrue.algorithm.aggregation import WeightedSums, total, weigh
from fedtrue.algorithm.client_update import ClientWork
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.server_optimizer import ServerState
from fedtrue.data.batches import batch_at, client_key, epoch_orders, round_key
from fedtrue.engine.lanes import NOBODY, Plan, at_work, idle_steps, next_change, pack

SAMPLING = 2**32 - 1  # the round's key is folded with this for sampling; clients are numbered from 0


class Federation(NamedTuple):
    """The train clients on the device: their data, and one number each of what differs between them."""

    columns: Any
    starts: Any
    sizes: Any
    steps: Any  # local steps
    rate_multipliers: Any  # γ_i
    weights: Any  # of their updates
    sampling_sizes: Any


class Shape(NamedTuple):
    """What the compilation depends on."""

    cohort: int
    lanes: int
    batch_size: int
    largest_client: int
    epochs: int
    shuffle: bool


class State(NamedTuple):
    """What one round hands to the next."""

    server: ServerState
    memory: Any  # one row a client: what `inherit` keeps; () for stateless methods


class RoundInfo(NamedTuple):
    """What people look at; the next round needs none of it."""

    cohort: Any
    steps: Any
    sums: Any
    clients: Any  # how many entered the mean
    dropped: Any
    pseudo_gradient_norm: Any
    idle_steps: Any


class Cohort(NamedTuple):
    """This round's clients, one entry a slot."""

    client: Any
    starts: Any
    sizes: Any
    rate_multipliers: Any
    weights: Any
    orders: Any
    keys: Any
    memory: Any


def initial_state(method: Method, loss: Callable[..., Any], params: Any, clients: int) -> State:
    """The server before round 0, and the memory of clients that never took part."""
    first_memory = method.phases[0].work(loss).first_memory
    return State(method.init(params), jax.vmap(lambda client: first_memory(params, client))(jnp.arange(clients)))


def sampled(method: Method, sizes: Any, cohort: int, seed: Any, round_index: Any) -> Any:
    """Who takes part in a round: the same clients wherever it is asked."""
    return method.sample(jax.random.fold_in(round_key(seed, round_index), SAMPLING), sizes, cohort)


def one_round(
    method: Method,
    loss: Callable[..., Any],
    shape: Shape,
    mesh: Mesh | None,
    federation: Federation,
    seed: Any,
    round_index: Any,
    state: State,
) -> tuple[State, RoundInfo]:
    """Sample, then each phase: clients on lanes → weighted sums → server."""
    server, memory = state
    chosen = sampled(method, federation.sampling_sizes, shape.cohort, seed, round_index)
    plan = pack(federation.steps[chosen], shape.lanes)
    learning_rate = method.learning_rate(round_index)
    for phase in method.phases:
        cohort = _gather_cohort(federation, memory, chosen, seed, round_index, shape)
        work = phase.work(loss)
        sums, kept = _train(work, federation.columns, server, cohort, plan, learning_rate, loss, shape, mesh)
        server, pseudo_gradient = phase.receive(server, sums)
        memory = jax.tree.map(lambda everyone, rows: everyone.at[chosen].set(rows), memory, kept)
    norm = _norm(pseudo_gradient)
    info = RoundInfo(chosen, plan.steps, sums.sums, sums.clients, sums.dropped, norm, idle_steps(plan))
    return State(server, memory), info


def many_rounds(
    step: Callable[[Any, State], tuple[State, RoundInfo]], first_round: Any, count: Any, state: State, infos: RoundInfo
) -> tuple[State, RoundInfo]:
    """`count` rounds from `first_round` on, in one loop; `infos` is a buffer with at least `count` rows."""

    def body(r: Any, carry: Any) -> Any:
        state, infos = carry
        state, info = step(first_round + r, state)
        return state, jax.tree.map(lambda rows, row: rows.at[r].set(row), infos, info)

    return jax.lax.fori_loop(0, count, body, (state, infos))


def _gather_cohort(
    federation: Federation, memory: Any, chosen: Any, seed: Any, round_index: Any, shape: Shape
) -> Cohort:
    keys = jax.vmap(lambda client: client_key(seed, round_index, client))(chosen)
    sizes = federation.sizes[chosen]
    order = lambda key, size: epoch_orders(key, size, shape.largest_client, shape.epochs, shape.shuffle)
    return Cohort(
        chosen,
        federation.starts[chosen],
        sizes,
        federation.rate_multipliers[chosen],
        federation.weights[chosen],
        jax.vmap(order)(keys, sizes),
        keys,
        jax.tree.map(lambda rows: rows[chosen], memory),
    )


def _train(
    work: ClientWork,
    columns: Any,
    server: ServerState,
    cohort: Cohort,
    plan: Plan,
    learning_rate: Any,
    loss: Callable[..., Any],
    shape: Shape,
    mesh: Mesh | None,
) -> tuple[WeightedSums, Any]:
    """All clients of the cohort → their weighted sums, and the memory each slot keeps."""
    train = partial(_train_lanes, work, loss, shape.batch_size)
    operands = (columns, server, cohort, plan, learning_rate)
    if mesh is None:
        return train(*operands, jnp.arange(shape.lanes))

    def on_device(*operands: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.lax.psum(leaf, "lanes"), train(*operands))

    everywhere, own = PartitionSpec(), PartitionSpec("lanes")
    specs = (*[everywhere] * len(operands), own)
    sharded = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=everywhere, check_vma=False)
    return sharded(*operands, jnp.arange(shape.lanes))


def _train_lanes(
    work: ClientWork,
    loss: Callable[..., Any],
    batch_size: int,
    columns: Any,
    server: ServerState,
    cohort: Cohort,
    plan: Plan,
    learning_rate: Any,
    lanes: Any,
) -> tuple[WeightedSums, Any]:
    """The lanes of one device, from the first client to the last deposit."""
    over_lanes = _map_over_lanes(lanes.shape[0])

    def batch_of(slot: Any, step: Any) -> Any:
        c = cohort
        return batch_at(columns, c.starts[slot], c.sizes[slot], c.orders[slot], step, batch_size, c.keys[slot])

    no_sums = _zeros(jax.eval_shape(lambda: loss(server.params, batch_of(0, 0))[1]))

    def start(slot: Any) -> Any:
        memory = jax.tree.map(lambda rows: rows[slot], cohort.memory)
        return work.start(server, cohort.client[slot], memory, no_sums)

    def step(state: Any, slot: Any, clock: Any) -> Any:
        rate = cohort.rate_multipliers[slot] * learning_rate
        return work.step(state, batch_of(slot, clock - plan.start[slot]), rate)

    def step_if_busy(state: Any, slot: Any, clock: Any) -> Any:
        return _choose(clock - plan.start[slot] < plan.steps[slot], step(state, slot, clock), state)

    def steps(clock: Any, until: Any, states: Any, slots: Any) -> Any:
        if lanes.shape[0] == 1:  # never idle, and carried without an axis of lanes XLA updates the weights in place
            run_alone = lambda state, slot: jax.lax.fori_loop(clock, until, lambda t, s: step(s, slot, t), state)
            return over_lanes(run_alone)(states, slots)
        return jax.lax.fori_loop(clock, until, lambda t, s: over_lanes(step_if_busy, 2)(s, slots, t), states)

    def deposit(state: Any, slot: Any, leaving: Any) -> tuple[WeightedSums, Any]:
        output = work.finish(server, state, cohort.rate_multipliers[slot])
        kept = jax.tree.map(lambda rows: rows[slot], cohort.memory)
        return weigh(output, cohort.weights[slot], leaving), _choose(output.finite, output.memory, kept)

    def deposit_all(states: Any, slots: Any, leaving: Any, kept: Any) -> tuple[WeightedSums, Any]:
        outputs, memory = over_lanes(deposit)(states, slots, leaving)
        place = jnp.where(leaving, slots, cohort.client.shape[0])  # out of range: not written
        return total(outputs), jax.tree.map(lambda rows, new: rows.at[place].set(new, mode="drop"), kept, memory)

    def until_next_change(carry: Any) -> Any:
        clock, before, states, sums, kept = carry
        slots = at_work(plan, lanes, clock)
        begun = over_lanes(start)(slots)
        states = begun if lanes.shape[0] == 1 else _choose(slots != before, begun, states)
        change = next_change(plan, lanes, clock)
        states = steps(clock, change, states, slots)
        following = jnp.where(change == end, NOBODY, at_work(plan, lanes, change))
        deposited, kept = deposit_all(states, slots, (slots != following) & (slots != NOBODY), kept)
        return change, slots, states, jax.tree.map(jnp.add, sums, deposited), kept

    nothing_kept = jax.tree.map(jnp.zeros_like, cohort.memory)
    end = jnp.max(plan.length[lanes])
    if lanes.shape[0] > 1 and cohort.client.shape[0] <= plan.length.shape[0]:
        # A lane for everybody: all begin now, at the server's weights. Under `vmap` those are one set, not one a lane,
        # so the first step reads them once, and nothing is ever copied to the lanes.
        slots = at_work(plan, lanes, 0)
        states = over_lanes(lambda slot: step(start(slot), slot, 0))(slots)
        return deposit_all(steps(1, end, states, slots), slots, slots != NOBODY, nothing_kept)
    slots = jnp.zeros(lanes.shape, jnp.int32)
    states = _zeros(jax.eval_shape(over_lanes(start), slots))
    sums = _zeros(jax.eval_shape(lambda: deposit_all(states, slots, slots == 0, nothing_kept)[0]))
    carry = (jnp.int32(0), slots + NOBODY, states, sums, nothing_kept)
    return jax.lax.while_loop(lambda carry: carry[0] < end, until_next_change, carry)[3:]


def _map_over_lanes(lanes: int) -> Callable[..., Any]:
    """`vmap` over lanes; one lane alone is not batched, which CPUs like better.

    The first `lane_arguments` (all, unless told) have one entry a lane; the rest, such as the clock, are shared.
    """

    def over_lanes(function: Callable[..., Any], lane_arguments: int | None = None) -> Callable[..., Any]:
        def mapped(*arguments: Any) -> Any:
            own = len(arguments) if lane_arguments is None else lane_arguments
            if lanes == 1:
                only = jax.tree.map(lambda leaf: leaf[0], arguments[:own])
                return jax.tree.map(lambda leaf: leaf[None], function(*only, *arguments[own:]))
            axes = (0,) * own + (None,) * (len(arguments) - own)
            return jax.vmap(function, axes)(*arguments)

        return mapped

    return over_lanes


def _choose(condition: Any, when_true: Any, when_false: Any) -> Any:
    """`where` for trees, the condition spread over the trailing axes."""

    def choose(a: Any, b: Any) -> Any:
        return jnp.where(jnp.reshape(condition, condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(choose, when_true, when_false)


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.result_type(float)) ** 2) for leaf in jax.tree.leaves(tree)))
