"""How many lanes, and what they take: decided and said before anything is compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedtrue.algorithm.method import Method
from fedtrue.tasks.task import Task

SMALL_MODEL = 20_000  # weights: with 10,000 a CPU is as fast on one lane as on five, with 50,000 faster on one
SLOWER = 1.05  # a round may get this much longer for the sake of fewer lanes
DRAWS = 64  # cohorts drawn to see how the rounds' lengths behave
USABLE = 0.8  # of the memory that is free; the rest is for activations and the data


class Lanes(NamedTuple):
    """The choice, and the bytes it takes on each device."""

    per_device: int
    devices: int
    lane_bytes: int

    def __str__(self) -> str:
        total = self.per_device * self.lane_bytes
        devices = "" if self.devices == 1 else f" on each of {self.devices} devices"
        return f"{self.per_device} lanes{devices}, {total / 1e6:,.1f} MB for weights, optimizer state and traces"


def lane_bytes(method: Method, loss: Callable[..., Any], params: Any) -> int:
    """What one lane holds: weights, optimizer state, trace and a gradient. Activations come on top."""

    def state(params: Any) -> Any:
        work = method.phases[0].work(loss)
        return work.start(method.init(params), 0, work.first_memory(params, 0), ()), params

    return _bytes(jax.eval_shape(state, params))


class MessageBytes(NamedTuple):
    """What one client and the server send each other in a round."""

    up: int
    down: int


def message_bytes(method: Method, task: Task) -> MessageBytes:
    """Down: the weights and what the clients share; up: what each contributes to the sums; once a phase."""

    def sent(key: Any) -> Any:
        params = task.init(key)
        server = method.init(params)
        works = [phase.work(task.loss) for phase in method.phases]
        starts = [work.start(server, 0, work.first_memory(params, 0), ()) for work in works]
        finished = [work.finish(server, state, 1.0) for work, state in zip(works, starts)]
        return [output.contribution for output in finished], [(server.params, server.shared) for _ in works]

    up, down = jax.eval_shape(sent, jax.random.key(0))
    return MessageBytes(_bytes(up), _bytes(down))


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def choose_lanes(
    steps: np.ndarray,
    cohort: int,
    params: Any,
    bytes_a_lane: int,
    devices: list[Any],
    wanted: int | None,
    cells: int = 1,
) -> Lanes:
    """As many lanes as asked for, or by the rule; refused if they do not fit.

    On a CPU a model of any size, or many cells of a small one, keep a core busy by themselves: one lane a device.
    Elsewhere lanes are cheap until the chip is full, so: the fewest that do not lengthen the round, given how unequal
    the clients are. If that is more than half of the cohort, a lane for everyone: 50 clients took 46.7 ms on 50 lanes
    of an H200, 56.0 ms on 45.
    """
    fitting = max(free_bytes(devices[0]) // max(bytes_a_lane, 1), 0)
    used = max(1, min(len(devices), cohort // (wanted or 1)))
    if wanted is None:
        used = min(len(devices), cohort)
        fewest = fewest_lanes(steps, cohort)
        side_by_side = cohort if fewest > cohort / 2 else fewest  # a lane each saves all changes of client
        wanted = 1 if _fills_a_core(params, devices[0], cells) else -(-side_by_side // used)
        wanted = max(1, min(wanted, fitting))
    if wanted > fitting:
        free = f"{free_bytes(devices[0]) / 1e9:,.1f} GB that are free on {devices[0]}"
        raise ValueError(
            f"{wanted} lanes of {bytes_a_lane / 1e6:,.1f} MB do not fit into the {free}: at most {fitting} do"
        )
    return Lanes(wanted, used, bytes_a_lane)


def cells_at_once(method: Method, task: Task, cohort: int | None = None) -> int:
    """How many runs of a grid train side by side: all that fit; on a CPU a model of any size fills a core by itself."""
    devices, params = jax.local_devices(), jax.eval_shape(task.init, jax.random.key(0))
    if _fills_a_core(params, devices[0]):
        return 1
    lane = lane_bytes(method, task.loss, params)
    clients = cohort or task.cohort or len(task.train)
    alone = choose_lanes(task.steps_of_clients(), clients, params, lane, devices, None)
    return max(1, free_bytes(devices[0]) // (alone.per_device * lane))


def _fills_a_core(params: Any, device: Any, cells: int = 1) -> bool:
    weights = sum(leaf.size for leaf in jax.tree.leaves(params))
    return device.platform == "cpu" and cells * weights > SMALL_MODEL


def fewest_lanes(steps: np.ndarray, cohort: int) -> int:
    """The fewest lanes whose rounds are hardly longer than with a lane for every client, over some drawn cohorts."""
    generator = np.random.default_rng(0)
    drawn = [np.sort(generator.choice(steps, cohort, replace=len(steps) < cohort))[::-1] for _ in range(DRAWS)]
    shortest = sum(int(cohort_steps[0]) for cohort_steps in drawn)
    low, high = 1, cohort
    while low < high:
        middle = (low + high) // 2
        if sum(_makespan(cohort_steps, middle) for cohort_steps in drawn) <= SLOWER * shortest:
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
        return int(USABLE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return 2**62
    fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
    return int(USABLE * int(fields["MemAvailable"].split()[0]) * 1024)
