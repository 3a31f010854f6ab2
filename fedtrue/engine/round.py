"""One round, and many in one program: sample a cohort, broadcast, train it on lanes, hand the sums to the server."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import WeightedSums, weigh
from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.interface import (
    METHOD,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Context,
    Loss,
    Phase,
    ServerState,
)
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import Draw, Sampling, Scores, Uploads
from fedtrue.algorithm.scored_sampling import tree_norm
from fedtrue.data.batches import round_key, steps_per_epoch
from fedtrue.engine.executors import Jobs, run_jobs
from fedtrue.engine.schedule import Plan, idle_steps, pack
from fedtrue.engine.step_dispatch import StepDispatch
from fedtrue.federation import Batches, Federation, batch, batches_of, loss_of
from fedtrue.tasks.task import Task

SAMPLING = 2**32 - 1  # the round's key is folded with this for sampling; clients are numbered from 0
CONTEXT = 2**32 - 2  # and with this for what phases draw
REPLIES = 2**32 - 3  # and with this for the clients that do not reply
UPLOADS = 2**32 - 4  # and with this for the choice of clients that upload


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

    cohort: Any  # the clients of all phases that sampled, without those that only reported scores; −1: an empty place
    participants: Any  # per phase
    steps: Any  # local steps, of all phases
    metric_sums: Any  # of the last phase
    clients: Any  # how many entered its mean
    dropped: Any
    pseudo_gradient_norm: Any
    idle_steps: Any
    missing: Any = None  # per phase, clients that did not reply; None if everybody does
    uploads: Any = None  # per phase, clients that sent their contributions; None if all that replied do
    left_out: Any = None  # clients that were drawn and found no place; None if the sampling has one for everybody


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
    rows: Any  # per place: {"memory": what it keeps, "score": what it reported, "finite": 0 or 1}, and "contributions"


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

    return tuple(map(first, method.all_phases))


def draw_cohort(
    sampling: Sampling, federation: Federation, cohort: int, seed: Any, round_index: Any, phase: int, scores: Any = None
) -> Draw:
    """Who takes part in a phase: the same clients wherever it is asked."""
    key = sampling_key(seed, round_index, phase)
    return sampling.draw(Context(round_index, key, len(federation), cohort), federation.sampling_sizes, scores)


def sampling_key(seed: Any, round_index: Any, phase: int) -> Any:
    """The randomness by which a phase draws its cohort."""
    key = jax.random.fold_in(round_key(seed, round_index), SAMPLING)
    return jax.random.fold_in(key, phase) if phase else key


def phase_key(seed: Any, round_index: Any, phase: int) -> Any:
    """The randomness of what a phase draws besides its cohort and batches."""
    return jax.random.fold_in(jax.random.fold_in(round_key(seed, round_index), CONTEXT), phase)


def one_round(
    setting: Setting, federation: Federation, memory_rows: Any, round_index: Any, state: State
) -> tuple[State, RoundInfo]:
    """Each phase in turn. `memory_rows[client]`: where a client's memory is, None: in the row of its number."""
    method, (server, memory) = setting.method, state
    phases = method.all_phases
    exchanges, scores = list[Exchanged](), None
    for number, phase in enumerate(phases):
        if phase.sampling is not None:
            sampling, cohort = phase.sampling, phase.cohort or setting.cohort
            drawn = draw_cohort(sampling, federation, cohort, setting.seed, round_index, number, scores)
            own = with_phase_steps(phase, federation)
            draw = _replying(setting, federation, round_index, drawn)
            plan = pack(own.steps[draw.clients], setting.lanes, draw.active)
        rows = draw.clients if memory_rows is None else memory_rows[draw.clients]
        context = _context(setting, federation, cohort, round_index, number)
        uploads = sampling.uploads if number == len(phases) - 1 else None
        trained = _train(setting, number, own, server, draw, plan, _rows(memory[number], rows), context, uploads)
        reported = draw._replace(active=draw.active & (trained.rows["finite"] > 0))
        sums, sent = trained.sums, draw
        if uploads is not None:
            sums, sent, server = _uploaded(setting, uploads, own, server, reported, trained, context)
        if phase.combine is not None:
            sums = aggregation.combined(sums, trained.rows["contributions"], reported.active, phase.combine)
        if sampling.fixed_denominator:
            sums = aggregation.with_expected_weights(sums, federation.weights, _rate(sampling, context))
        server, pseudo_gradient = aggregation.receive(phase, server, sums, context)
        scores = Scores(draw.clients, trained.rows["score"], reported.active)
        memory = _with_rows(memory, number, sent, rows, trained.rows["memory"])
        exchanges.append(Exchanged(phase, drawn, plan, sent))
    return State(server, memory), _info(setting, exchanges, sums, pseudo_gradient)


class Exchanged(NamedTuple):
    """Who took part in a phase."""

    phase: Phase
    drawn: Draw  # who was asked
    plan: Plan  # of those that replied
    sent: Draw  # who sent its contributions


def _rate(sampling: Sampling, context: Context) -> float:
    assert sampling.rate is not None, "a fixed denominator is for samplings with a rate"
    return sampling.rate(context.clients, context.cohort)


def with_phase_steps(phase: Phase, federation: Federation) -> Federation:
    """The clients with as many steps as they take in this phase."""
    if phase.steps is None:
        return federation
    epoch = steps_per_epoch(federation.sizes, federation.batch_size)
    return federation.with_steps(phase.steps(federation.steps, epoch))


def _uploaded(
    setting: Setting,
    uploads: Uploads,
    federation: Federation,
    server: ServerState,
    reported: Draw,
    trained: Trained,
    context: Context,
) -> tuple[WeightedSums, Draw, ServerState]:
    """The sums over the clients that upload, who they are, and the server with what the choice keeps."""
    weights = federation.weights_of(reported.clients)
    key = jax.random.fold_in(round_key(setting.seed, context.round), UPLOADS)
    report, state = trained.rows["score"], server.sampling
    sent, state = uploads.choose(context._replace(key=key), reported, report, weights[METHOD], state)
    sums = aggregation.uploaded(trained.sums, trained.rows["contributions"], weights, sent, uploads.unbiased)
    return sums, sent, server._replace(sampling=state)


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


def _context(setting: Setting, federation: Federation, cohort: int, round_index: Any, number: int) -> Context:
    return Context(round_index, phase_key(setting.seed, round_index, number), len(federation), cohort)


def _train(
    setting: Setting,
    number: int,
    federation: Federation,
    server: ServerState,
    draw: Draw,
    plan: Plan,
    memory: Any,
    context: Context,
    uploads: Uploads | None,
) -> Trained:
    """All clients of a phase: on one device, or each device with its share of the lanes."""
    phase = setting.method.all_phases[number]
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
        return _jobs(work, federation, broadcast, cohort, own_context, uploads, phase.combine is not None)

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


def _jobs(
    work: ClientWork,
    federation: Federation,
    broadcast: Broadcast,
    cohort: Cohort,
    context: Context,
    uploads: Uploads | None,
    one_by_one: bool,
) -> Jobs:
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
        output, report = _to_choose_from(output, uploads, one_by_one)
        row = {"memory": kept, "finite": output.finite.astype(jnp.int32), **report}
        return weigh(output, _rows(cohort.weights, place), present), row

    row = jax.eval_shape(lambda: finish(start(0), 0, jnp.bool_(True))[1])
    places = cohort.active.shape[0]
    return Jobs(start, step, finish, jax.tree.map(lambda leaf: jnp.zeros((places, *leaf.shape), leaf.dtype), row))


def _to_choose_from(
    output: ClientOutput, uploads: Uploads | None, one_by_one: bool
) -> tuple[ClientOutput, dict[str, Any]]:
    """What enters the sums now, and what the place leaves behind, from which later choices are made."""
    score = jnp.asarray(0.0 if output.score is None else output.score, jnp.result_type(float))
    if uploads is None and not one_by_one:
        return output, {"score": score}
    report = score if uploads is None else uploads.report(output.contributions)
    return output._replace(contributions={}), {"score": report, "contributions": output.contributions}


def _rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _with_rows(memory: Any, number: int, draw: Draw, rows: Any, kept: Any) -> Any:
    """The memory of phase `number` with the rows of the clients that took part replaced."""

    def written(everyone: Any, new: Any) -> Any:
        return everyone.at[jnp.where(draw.active, rows, everyone.shape[0])].set(new, mode="drop")

    replaced = jax.tree.map(written, memory[number], kept)
    return (*memory[:number], replaced, *memory[number + 1 :])


def _info(setting: Setting, exchanges: list[Exchanged], sums: WeightedSums, pseudo_gradient: Any) -> RoundInfo:
    plans = [exchange.plan for exchange in exchanges]
    scoring = setting.method.sampling.scoring
    drawn = [each.drawn for each in exchanges if each.phase.sampling and each.phase is not scoring]
    replied = jnp.stack([jnp.sum(plan.lane < plan.length.shape[0]) for plan in plans])
    asked = jnp.stack([jnp.sum(exchange.drawn.active) for exchange in exchanges])
    samplings = [each.phase.sampling for each in exchanges if each.phase.sampling]
    return RoundInfo(
        cohort=jnp.concatenate([jnp.where(draw.active, draw.clients, -1) for draw in drawn]),
        participants=asked,
        steps=sum(jnp.sum(plan.steps) for plan in plans),
        metric_sums=sums.metric_sums,
        clients=sums.clients,
        dropped=sums.dropped,
        pseudo_gradient_norm=tree_norm(pseudo_gradient),
        idle_steps=sum(idle_steps(plan) for plan in plans),
        missing=None if setting.availability is None else asked - replied,
        uploads=jnp.stack([jnp.sum(each.sent.active) for each in exchanges])
        if any(sampling.uploads for sampling in samplings)
        else None,
        left_out=sum(draw.left_out for draw in drawn) if any(sampling.rate for sampling in samplings) else None,
    )
