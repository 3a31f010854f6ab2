"""How many lanes, and what they take: decided and said before anything is compiled."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.compression import message_bytes as compressed_bytes
from fedtrue.algorithm.interface import Client, ClientOutput, Context, Loss, Phase, ServerState
from fedtrue.algorithm.method import Method
from fedtrue.tasks.task import Task

SMALL_MODEL = 20_000  # weights: with 10,000 a CPU is as fast on one lane as on five, with 50,000 faster on one
MAX_SLOWDOWN = 1.05  # a round may get this much longer for the sake of fewer lanes
SAMPLED_COHORTS = 64  # cohorts drawn to see how the rounds' lengths behave
MEMORY_SHARE = 0.8  # of the memory that is free; the rest is for activations and the data


class Lanes(NamedTuple):
    """The choice, and the bytes it takes on each device."""

    per_device: int
    devices: int
    lane_bytes: int

    def __str__(self) -> str:
        total = self.per_device * self.lane_bytes
        devices = "" if self.devices == 1 else f" on each of {self.devices} devices"
        lanes = "1 lane" if self.per_device == 1 else f"{self.per_device} lanes"
        return f"{lanes}{devices}, {total / 1e6:,.1f} MB for weights, optimizer state and traces"


class Exchange(NamedTuple):
    """One phase of one client: what each part of it holds."""

    broadcast: Any
    memory: Any
    state: Any
    output: ClientOutput


def exchanges(task: Task, method: Method) -> list[Exchange]:
    """The shapes of every phase; nothing is computed."""

    def first_client(key: Any) -> list[Exchange]:
        server = method.init(task.init(key))
        context = Context(jnp.int32(0), key, len(task.train), 1)
        client = Client(jnp.int32(0), jnp.int32(1), *jnp.ones(2))
        return [_exchange(phase, server, client, context) for phase in method.all_phases]

    def _exchange(phase: Phase, server: ServerState, client: Client, context: Context) -> Exchange:
        work, broadcast = phase.work(Loss(task.loss, ())), phase.broadcast(server, context)
        memory = work.init_memory(broadcast, client.index)
        state = work.start(broadcast, client, memory)
        return Exchange(broadcast, memory, state, work.finish(broadcast, state, client, context))

    return jax.eval_shape(first_client, jax.random.key(0))


def lane_bytes(task: Task, method: Method) -> int:
    """What one lane holds in the largest phase: weights, optimizer state, trace and a gradient; no activations."""
    gradient = tree_bytes(jax.eval_shape(task.init, jax.random.key(0)))
    return max(tree_bytes(exchange.state) for exchange in exchanges(task, method)) + gradient


class MessageBytes(NamedTuple):
    """What one client and the server send each other, per phase."""

    up: tuple[int, ...]
    down: tuple[int, ...]
    reports: tuple[int, ...]  # up, besides: the numbers by which a sampling chooses


def message_bytes(task: Task, method: Method) -> MessageBytes:
    """Down: the broadcast; up: the contributions, compressed; and what is exchanged to choose who trains or uploads."""
    found = exchanges(task, method)
    up = [compressed_bytes(method.upload.compression, exchange.output.contributions) for exchange in found]
    down = [tree_bytes(exchange.broadcast) for exchange in found]
    reports = [tree_bytes(exchange.output.score) for exchange in found]
    if uploads := method.sampling.uploads:
        choice_up, choice_down = uploads.exchanged
        report = jax.eval_shape(uploads.report, found[-1].output.contributions)
        reports[-1], down[-1] = tree_bytes(report) + choice_up, down[-1] + choice_down
    return MessageBytes(tuple(up), tuple(down), tuple(reports))


def memory_bytes(task: Task, method: Method) -> int:
    """What one client keeps between rounds."""
    return sum(tree_bytes(exchange.memory) for exchange in exchanges(task, method))


def held_bytes(task: Task, method: Method, cohort: int) -> int:
    """The updates of a cohort, if they are held until it is known who uploads, or what is made of them."""
    found = exchanges(task, method)
    held = found if method.all_phases[-1].combine else found[-1:] if method.sampling.uploads else []
    places = method.sampling.places(len(task.train), cohort)
    return places * max((tree_bytes(exchange.output.contributions) for exchange in held), default=0)


def tree_bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def choose_lanes(
    steps: np.ndarray,
    cohort: int,
    params: Any,
    bytes_per_lane: int,
    devices: list[Any],
    wanted: int | None,
    cells: int = 1,
) -> Lanes:
    """As many lanes as asked for, or by the rule; refused if they do not fit.

    On a CPU a model of any size, or many cells of a small one, keep a core busy by themselves: one lane per device. A
    small model takes less time than the devices need to meet: all its lanes are on one.
    Elsewhere lanes are cheap until the chip is full, so: the fewest that do not lengthen the round, given how unequal
    the clients are. If that is more than half of the cohort, a lane for everyone: 50 clients took 46.7 ms on 50 lanes
    of an H200, 56.0 ms on 45.
    """
    fitting = max(free_bytes(devices[0]) // max(bytes_per_lane, 1), 0)
    used = max(1, min(len(devices), cohort // (wanted or 1)))
    if wanted is None:
        is_small = devices[0].platform == "cpu" and not _fills_a_core(params, devices[0], cells)
        used = 1 if is_small else min(len(devices), cohort)
        fewest = fewest_lanes(steps, cohort)
        side_by_side = cohort if fewest > cohort / 2 else fewest  # a lane each saves all changes of client
        wanted = 1 if _fills_a_core(params, devices[0], cells) else -(-side_by_side // used)
        wanted = max(1, min(wanted, fitting))
    if wanted > fitting:
        free = f"{free_bytes(devices[0]) / 1e9:,.1f} GB that are free on {devices[0]}"
        raise ValueError(
            f"{wanted} lanes of {bytes_per_lane / 1e6:,.1f} MB do not fit into the {free}: at most {fitting} do"
        )
    return Lanes(wanted, used, bytes_per_lane)


def cells_at_once(task: Task, method: Method, cohort: int | None = None) -> int:
    """How many runs of a grid train side by side: all that fit; on a CPU a model of any size fills a core by itself."""
    devices, params = jax.local_devices(), jax.eval_shape(task.init, jax.random.key(0))
    if _fills_a_core(params, devices[0]):
        return 1
    lane = lane_bytes(task, method)
    clients = cohort or task.cohort or len(task.train)
    alone = choose_lanes(task.steps_of_clients(), clients, params, lane, devices, None)
    return max(1, free_bytes(devices[0]) // (alone.per_device * lane + held_bytes(task, method, clients)))


def _fills_a_core(params: Any, device: Any, cells: int = 1) -> bool:
    weights = sum(leaf.size for leaf in jax.tree.leaves(params))
    return device.platform == "cpu" and cells * weights > SMALL_MODEL


def fewest_lanes(steps: np.ndarray, cohort: int) -> int:
    """The fewest lanes whose rounds are hardly longer than with a lane for every client, over some drawn cohorts."""
    generator = np.random.default_rng(0)
    drawn = [
        np.sort(generator.choice(steps, cohort, replace=len(steps) < cohort))[::-1] for _ in range(SAMPLED_COHORTS)
    ]
    shortest = sum(int(cohort_steps[0]) for cohort_steps in drawn)
    low, high = 1, cohort
    while low < high:
        middle = (low + high) // 2
        if sum(_makespan(cohort_steps, middle) for cohort_steps in drawn) <= MAX_SLOWDOWN * shortest:
            high = middle
        else:
            low = middle + 1
    return low


def _makespan(longest_first: np.ndarray, lanes: int) -> int:
    """When the last lane ends, each client going to the lane that is free soonest."""
    load = np.zeros(lanes, np.int64)
    for steps in longest_first:
        load[load.argmin()] += steps
    return int(load.max())


def free_bytes(device: Any) -> int:
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(MEMORY_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return 2**62
    fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
    return int(MEMORY_SHARE * int(fields["MemAvailable"].split()[0]) * 1024)
