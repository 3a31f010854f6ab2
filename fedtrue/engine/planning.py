"""What a simulation will do, decided before anything is placed or compiled: cohort, lanes, devices, where data lies."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.interface import OBJECTIVE, Phase
from fedtrue.algorithm.method import Method
from fedtrue.engine.capacity import (
    Lanes,
    choose_lanes,
    exchanges,
    free_bytes,
    held_bytes,
    lane_bytes,
    memory_bytes,
)
from fedtrue.engine.upload_checks import check_upload_parts
from fedtrue.engine.window import WINDOW_BYTES, column_bytes, window_rounds
from fedtrue.tasks.task import Task

DATA_SHARE = 0.5  # of the free memory that data may take; else it stays on the host
MEMORY_SHARE = 0.4  # of the free memory that the clients' memory may take beside the data: a run starts with two copies
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
    size = _cohort_size(method, cohort if cohort is not None else task.cohort, clients)
    if lanes is not None:
        check_int("lanes", lanes, low=1)
    devices = jax.local_devices()
    free = free_bytes(devices[0])
    params = jax.eval_shape(task.init, jax.random.key(0))
    steps = task.steps_of_clients(local_steps)
    places = known_places(method, clients, size)
    _check_memory(task, method)
    held = cells * held_bytes(task, method, size)
    _check_uploads(task, method, held, free)
    check_upload_parts(task, method, size, held, free)
    chosen = choose_lanes(steps, size, params, lane_bytes(task, method) * cells, devices, lanes, cells)
    memory = memory_bytes(task, method) * cells
    data = column_bytes(task.train)
    data_on_host = not _wanted(data_on_device, data <= DATA_SHARE * free)
    left = free if data_on_host else free - data
    memory_on_host = memory > 0 and not _wanted(memory_on_device, clients * memory <= MEMORY_SHARE * left)
    if (data_on_host or memory_on_host) and not all(map(_draws_among_known, method.all_phases)):
        raise ValueError(
            "the data does not fit on the device, and this method's cohorts are not known in advance: "
            "use fewer clients, or a sampling that needs no scores"
        )
    rounds = window_rounds(task.train, places, ROUNDS_PER_DISPATCH) if data_on_host else ROUNDS_PER_DISPATCH
    if memory_on_host and clients * memory > WINDOW_BYTES:
        rounds = min(rounds, max(1, int(WINDOW_BYTES // (places * memory))))
    return SimulationPlan(size, chosen, tuple(devices[: chosen.devices]), data_on_host, memory_on_host, rounds)


def _wanted(asked: bool | None, fits: bool) -> bool:
    return fits if asked is None else asked


def _cohort_size(method: Method, cohort: int | None, clients: int) -> int:
    size = clients if cohort is None else check_int("cohort", cohort, low=1, high=clients)
    if method.needs_all_clients and size < clients:
        raise ValueError(
            f"{method.name} needs all {clients} clients in every round, not {size}: set cohort to {clients}, or use "
            "feddyn or scaffold, which sample clients"
        )
    return size


def known_places(method: Method, clients: int, cohort: int) -> int:
    """Places of all draws of a round that look at no scores: the others draw among the clients of these."""
    phases = method.all_phases
    found = [(phase.sampling, phase.cohort or cohort) for phase in phases if phase.sampling is not None]
    places = [sampling.places(clients, asked) for sampling, asked in found]
    return sum(count for count, (sampling, _) in zip(places, found) if not sampling.needs_scores)


def _draws_among_known(phase: Phase) -> bool:
    """Whether the clients of a phase are known before the round, or are among those of its sampling's own scoring."""
    return phase.sampling is None or not phase.sampling.needs_scores or phase.sampling.scoring is not None


def _check_memory(task: Task, method: Method) -> None:
    """A server may follow what clients keep by the mean of their updates, if that has the objective's weights."""
    parts, sampling = method.clients, method.sampling
    estimated = sampling.uploads is not None or (sampling.in_proportion_to_size and not sampling.with_replacement)
    if not estimated or parts is None or parts.rule.init_memory is None:
        return
    sent = exchanges(task, method)[-1].output.contributions
    if not any(contribution.weighting == OBJECTIVE for contribution in sent.values()):
        raise ValueError(
            f"the server of {method.name} follows its clients' memory by the mean of their updates, which sampling "
            f"{sampling.name!r} weighs otherwise: give {method.name} a weighting, e.g. weighting='uniform', with which "
            "clients send both"
        )


def _check_uploads(task: Task, method: Method, held: int, free: int) -> None:
    """Refuses a method without the state of its sampling, and updates that do not fit until it is chosen among them."""
    uploads, name = method.sampling.uploads, method.sampling.name
    if uploads is None:
        return
    params = jax.eval_shape(task.init, jax.random.key(0))
    states = jax.eval_shape(lambda params: (method.init(params).sampling, uploads.init(params)), params)
    if len(jax.tree.leaves(states[0])) != len(jax.tree.leaves(states[1])):
        raise ValueError(
            f"sampling {name!r} keeps a state at the server, which {method.name} does not have: build the method with "
            "ft.interface.federated"
        )
    if held > free:
        raise ValueError(
            f"sampling {name!r} holds the updates of the whole cohort until it is known who uploads: "
            f"{held / 1e9:,.1f} GB do not fit into the {free / 1e9:,.1f} GB that are free; use a smaller cohort"
        )
