"""One round, and many in one program: sample a cohort, broadcast, train it on lanes, hand the sums to the server."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import WeightedSums, weigh
from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.interface import Broadcast, Client, ClientWork, Context, Loss, Phase, ServerState
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import Draw, Sampling, Scores
from fedtrue.data.batches import round_key
from fedtrue.engine.executors import Jobs, run_jobs
from fedtrue.engine.schedule import Plan, idle_steps, pack
from fedtrue.engine.step_dispatch import StepDispatch
from fedtrue.federation import Batches, Federation, batch, batches_of, loss_of
from fedtrue.tasks.task import Task

SAMPLING = 2**32 - 1  # the round's key is folded with this for sampling; clients are numbered from 0
CONTEXT = 2**32 - 2  # and with this for what phases draw
REPLIES = 2**32 - 3  # and with this for the clients that do not reply


class Setting(NamedTuple):
    """What a round is made of, besides its state."""

    task: Task
    method: Method
    cohort: int
    lanes: int
    mesh: Mesh | None
    seed: Any
    availability: Availability | None = None
    step_dispatch: StepDispatch | None = None  # None: the steps of a round are one program


class State(NamedTuple):
    """What one round hands to the next."""

    server: ServerState
    memory: Any  # per phase, one row per client: what clients keep between rounds; () for those that keep nothing


class RoundInfo(NamedTuple):
    """What people look at; the next round needs none of it."""

    cohort: Any  # the clients of all phases that sampled; −1: an empty place
    participants: Any  # per phase
    steps: Any  # local steps, of all phases
    metric_sums: Any  # of the last phase
    clients: Any  # how many entered its mean
    dropped: Any
    pseudo_gradient_norm: Any
    idle_steps: Any
    missing: Any = None  # per phase, clients that did not reply; None if everybody does


class Cohort(NamedTuple):
    """One phase's clients, one entry per place."""

    client: Client
    active: Any
    batches: Batches
    weights: dict[str, Any]
    memory: Any


class Trained(NamedTuple):
    """What a phase's clients came to."""

    sums: WeightedSums
    rows: Any  # {"memory": what each place keeps, "score": for the sampling of later phases}


def initial_state(task: Task, method: Method, federation: Federation, params: Any) -> State:
    """The server before round 0, and the memory of clients that never took part."""
    server = method.init(params)
    return State(server, client_memory(task, method, federation, server, jnp.arange(len(federation))))


def client_memory(task: Task, method: Method, federation: Federation, server: ServerState, clients: Any) -> Any:
    """What these clients keep before they first take part, one row each, per phase."""
    loss = Loss(task.loss, ())  # nobody steps here
    context = Context(0, jax.random.key(0), len(federation), 1)

    def first(phase: Phase) -> Any:
        work, broadcast = phase.work(loss), phase.broadcast(server, context)
        return jax.vmap(lambda client: work.init_memory(broadcast, client))(clients)

    return tuple(map(first, method.phases))


def draw_cohort(
    sampling: Sampling, federation: Federation, cohort: int, seed: Any, round_index: Any, phase: int, scores: Any = None
) -> Draw:
    """Who takes part in a phase: the same clients wherever it is asked."""
    key = jax.random.fold_in(round_key(seed, round_index), SAMPLING)
    key = jax.random.fold_in(key, phase) if phase else key
    return sampling.draw(key, federation.sampling_sizes, cohort, scores)


def one_round(
    setting: Setting, federation: Federation, memory_rows: Any, round_index: Any, state: State
) -> tuple[State, RoundInfo]:
    """Each phase in turn. `memory_rows[client]`: where a client's memory is, None: in the row of its number."""
    method, (server, memory) = setting.method, state
    draws, invited, plans, scores = list[Draw](), list[Draw](), list[Plan](), None
    for number, phase in enumerate(method.phases):
        sampling = phase.sampling if number else method.sampling
        if sampling is not None:
            places = phase.cohort or setting.cohort
            draw = draw_cohort(sampling, federation, places, setting.seed, round_index, number, scores)
            draws.append(draw)
            draw = _replying(setting, federation, round_index, draw)
            plan = pack(federation.steps[draw.clients], setting.lanes, draw.active)
        invited.append(draws[-1])
        plans.append(plan)
        rows = draw.clients if memory_rows is None else memory_rows[draw.clients]
        context = _context(setting, federation, draw, round_index, number)
        own_memory = _rows(memory[number], rows)
        trained = _train(setting, number, federation, server, draw, plan, own_memory, context)
        server, pseudo_gradient = aggregation.receive(phase, server, trained.sums, context)
        scores = Scores(draw.clients, trained.rows["score"])
        memory = _with_rows(memory, number, draw, rows, trained.rows["memory"])
    info = _info(draws, plans, trained.sums, pseudo_gradient)
    if setting.availability is not None:
        participants = jnp.stack([jnp.sum(draw.active) for draw in invited])
        info = info._replace(participants=participants, missing=participants - info.participants)
    return State(server, memory), info


def _replying(setting: Setting, federation: Federation, round_index: Any, draw: Draw) -> Draw:
    """The cohort without the clients that do not reply in this round."""
    if setting.availability is None:
        return draw
    key = jax.random.fold_in(round_key(setting.seed, round_index), REPLIES)
    in_time = federation.steps[draw.clients] > 0
    return draw._replace(active=draw.active & in_time & setting.availability.replies(key, draw.clients))


def many_rounds(
    step: Callable[[Any, State], tuple[State, RoundInfo]], first_round: Any, count: Any, state: State, infos: RoundInfo
) -> tuple[State, RoundInfo]:
    """`count` rounds from `first_round` on, in one loop; `infos` is a buffer with at least `count` rows."""

    def body(r: Any, carry: Any) -> Any:
        state, infos = carry
        state, info = step(first_round + r, state)
        return state, jax.tree.map(lambda rows, row: rows.at[r].set(row), infos, info)

    return jax.lax.fori_loop(0, count, body, (state, infos))


def _context(setting: Setting, federation: Federation, draw: Draw, round_index: Any, number: int) -> Context:
    key = jax.random.fold_in(jax.random.fold_in(round_key(setting.seed, round_index), CONTEXT), number)
    return Context(round_index, key, len(federation), draw.clients.shape[0])


def _train(
    setting: Setting,
    number: int,
    federation: Federation,
    server: ServerState,
    draw: Draw,
    plan: Plan,
    memory: Any,
    context: Context,
) -> Trained:
    """All clients of a phase: on one device, or each device with its share of the lanes."""
    phase = setting.method.phases[number]
    work = phase.work(loss_of(setting.task, federation, server.params))
    broadcast = phase.broadcast(server, context)
    learning_rate = setting.method.learning_rate(context.round)
    batches = jax.vmap(lambda client: batches_of(federation, client, setting.seed, context.round))(draw.clients)
    client = jax.vmap(lambda index: federation.client(index, learning_rate))(draw.clients)
    cohort = Cohort(client, draw.active, batches, federation.weights_of(draw.clients), memory)
    operands = (federation, broadcast, cohort, (context.round, context.key))

    def jobs_of(operands: Any) -> Jobs:
        federation, broadcast, cohort, (round_index, key) = operands
        own_context = Context(round_index, key, context.clients, context.cohort)
        return _jobs(work, federation, broadcast, cohort, own_context)

    if setting.step_dispatch is not None:
        return Trained(*setting.step_dispatch.run_jobs(number, jobs_of, operands, plan))

    def train(operands: Any, plan: Plan, lanes: Any) -> Trained:
        return Trained(*run_jobs(jobs_of(operands), plan, lanes))

    lanes = jnp.arange(setting.lanes)
    if setting.mesh is None:
        return train(operands, plan, lanes)

    def on_device(operands: Any, plan: Plan, lanes: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.lax.psum(leaf, "lanes"), train(operands, plan, lanes))

    specs = (PartitionSpec(), PartitionSpec(), PartitionSpec("lanes"))
    sharded = jax.shard_map(on_device, mesh=setting.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False)
    return sharded(operands, plan, lanes)


def _jobs(work: ClientWork, federation: Federation, broadcast: Broadcast, cohort: Cohort, context: Context) -> Jobs:
    """A client's work as a job: the only place where lanes and clients meet."""

    def start(place: Any) -> Any:
        return work.start(broadcast, _rows(cohort.client, place), _rows(cohort.memory, place))

    def step(state: Any, place: Any, k: Any) -> Any:
        client = _rows(cohort.client, place)
        examples = batch(federation, _rows(cohort.batches, place), k)
        return work.step(broadcast, state, examples, client.rate_multiplier * client.learning_rate)

    def finish(state: Any, place: Any, present: Any) -> tuple[WeightedSums, Any]:
        output = work.finish(broadcast, state, _rows(cohort.client, place), context)
        before = _rows(cohort.memory, place)
        kept = jax.tree.map(lambda new, old: jnp.where(output.finite, new, old), output.memory, before)
        score = jnp.asarray(output.score, jnp.result_type(float))
        return weigh(output, _rows(cohort.weights, place), present), {"memory": kept, "score": score}

    places = cohort.active.shape[0]
    no_rows = {"memory": jax.tree.map(jnp.zeros_like, cohort.memory), "score": jnp.zeros(places)}
    return Jobs(start, step, finish, no_rows)


def _rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _with_rows(memory: Any, number: int, draw: Draw, rows: Any, kept: Any) -> Any:
    """The memory of phase `number` with the rows of the clients that took part replaced."""

    def written(everyone: Any, new: Any) -> Any:
        return everyone.at[jnp.where(draw.active, rows, everyone.shape[0])].set(new, mode="drop")

    replaced = jax.tree.map(written, memory[number], kept)
    return (*memory[:number], replaced, *memory[number + 1 :])


def _info(draws: list[Draw], plans: list[Plan], sums: WeightedSums, pseudo_gradient: Any) -> RoundInfo:
    active = [jnp.sum(plan.lane < plan.length.shape[0]) for plan in plans]
    return RoundInfo(
        cohort=jnp.concatenate([jnp.where(draw.active, draw.clients, -1) for draw in draws]),
        participants=jnp.stack(active),
        steps=sum(jnp.sum(plan.steps) for plan in plans),
        metric_sums=sums.metric_sums,
        clients=sums.clients,
        dropped=sums.dropped,
        pseudo_gradient_norm=_norm(pseudo_gradient),
        idle_steps=sum(idle_steps(plan) for plan in plans),
    )


def _norm(tree: Any) -> Any:
    return jnp.sqrt(sum(jnp.sum(leaf.astype(jnp.result_type(float)) ** 2) for leaf in jax.tree.leaves(tree)))
