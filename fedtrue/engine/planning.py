"""What a simulation will do, decided before anything is placed or compiled: cohort, lanes, devices, where data lies."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.method import Method
from fedtrue.engine.capacity import Lanes, choose_lanes, free_bytes, lane_bytes, memory_bytes
from fedtrue.engine.window import WINDOW_BYTES, column_bytes, window_rounds
from fedtrue.tasks.task import Task

DATA_SHARE = 0.5  # of the free memory that data may take; else it stays on the host
MEMORY_SHARE = 0.25  # of the free memory that the memory of all clients may take; else it stays on the host
ROUNDS_PER_DISPATCH = 1024  # at most; the buffer of round infos has this length


class SimulationPlan(NamedTuple):
    """The decisions."""

    cohort: int
    lanes: Lanes
    devices: tuple[Any, ...]
    data_on_host: bool
    memory_on_host: bool
    rounds_per_dispatch: int

    @property
    def all_lanes(self) -> int:
        return self.lanes.per_device * self.lanes.devices


def plan_simulation(
    task: Task,
    method: Method,
    *,
    cells: int = 1,
    cohort: int | None = None,
    local_steps: int | Sequence[int] | None = None,
    lanes: int | None = None,
    data_on_device: bool | None = None,
    memory_on_device: bool | None = None,
) -> SimulationPlan:
    """By the rules of `capacity`, where nothing is asked for; `cells` runs share the devices."""
    clients = len(task.train)
    size = _cohort_size(cohort if cohort is not None else task.cohort, clients)
    if lanes is not None:
        check_int("lanes", lanes, low=1)
    devices = jax.local_devices()
    free = free_bytes(devices[0])
    params = jax.eval_shape(task.init, jax.random.key(0))
    steps = task.steps_of_clients(local_steps)
    chosen = choose_lanes(steps, size, params, lane_bytes(task, method) * cells, devices, lanes, cells)
    memory = memory_bytes(task, method) * cells
    data_on_host = not _wanted(data_on_device, column_bytes(task.train) <= DATA_SHARE * free)
    memory_on_host = memory > 0 and not _wanted(memory_on_device, clients * memory <= MEMORY_SHARE * free)
    if (data_on_host or memory_on_host) and any(p.sampling and p.sampling.needs_scores for p in method.phases):
        raise ValueError(
            "the data does not fit on the device, and this method's cohorts are not known in advance: "
            "use fewer clients, or a sampling that needs no scores"
        )
    places = sampled_places(method, size)
    rounds = window_rounds(task.train, places, ROUNDS_PER_DISPATCH) if data_on_host else ROUNDS_PER_DISPATCH
    if memory_on_host:
        rounds = min(rounds, max(1, int(WINDOW_BYTES // (places * memory))))
    return SimulationPlan(size, chosen, tuple(devices[: chosen.devices]), data_on_host, memory_on_host, rounds)


def _wanted(asked: bool | None, fits: bool) -> bool:
    return fits if asked is None else asked


def _cohort_size(cohort: int | None, clients: int) -> int:
    return clients if cohort is None else check_int("cohort", cohort, low=1, high=clients)


def sampled_places(method: Method, cohort: int) -> int:
    """Clients that are drawn per round, in all phases."""
    phases = method.phases
    return sum(phase.cohort or cohort for i, phase in enumerate(phases) if i == 0 or phase.sampling is not None)
