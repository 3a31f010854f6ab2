"""Takes a round apart at given weights: which clients are looked at, in which cohorts, over which batches."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.interface import ServerState
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import Sampling, client_sizes
from fedtrue.diagnosis.clients import Point, VisitedClient, add_up, without_momentum
from fedtrue.diagnosis.decompose import Decomposition, decompose
from fedtrue.engine.window import Window
from fedtrue.federation import Federation, federation_of
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import everyone

CLIENTS = 100  # looked at, of a larger federation: a standard error of a tenth of how clients differ
ORDERS = 8  # batch orders an expectation is taken over: its standard error is a third of one round's scatter
COHORTS = (16, 4096)  # drawn at least and at most; all of them are taken where there are no more
COHORT_BYTES = 2**28  # for the sums of the cohorts: one model per cohort, twice

Progress = Callable[[Iterable[VisitedClient], int], Iterable[VisitedClient]]  # clients and how many: for a progress bar


class Setting(NamedTuple):
    """How the run trains, besides its task and method."""

    cohort: int | None = None
    local_steps: int | Sequence[int] | None = None
    rate_multipliers: Sequence[float] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Diagnosis:
    """A run's model, taken apart."""

    task: str
    method: Any  # its spec
    objective: str  # what the task weighs clients by
    batch_size: int
    round: int
    federation: int  # clients there are
    cohort: int
    orders: int
    client_weights: np.ndarray  # n_i of the clients looked at
    numbers: Decomposition


def measure_round(
    task: Task,
    method: Method,
    server: ServerState,
    memory_of: Callable[[int], Any],
    round_index: int,
    setting: Setting,
    clients: int = CLIENTS,
    orders: int = ORDERS,
    progress: Progress = lambda visited, count: visited,
) -> Diagnosis:
    """Takes the round `round_index` apart, over at least `clients` clients; `memory_of(client)` is what one kept."""
    check_int("clients", clients, low=1)
    check_int("orders", orders, low=1)
    if method.clients is None or len(method.phases) != 1:
        raise ValueError(f"method {method.name!r} cannot be taken apart: it does not say what its clients are made of")
    with float64(task.float64):
        table = federation_of(task, method, setting.local_steps, setting.rate_multipliers, columns={})
        chosen = choose_clients(task, method, server, setting, clients)
        rate = method.learning_rate(round_index)
        point = Point(round_index, setting.seed, orders, rate)
        broadcast = method.phases[0].broadcast(server, everyone(table, setting.seed, round_index))
        broadcast = without_momentum(method.clients, broadcast)
        visited = progress(_visits(task, table, chosen, memory_of), len(chosen.clients))
        sums, weights = add_up(task, method.clients, point, broadcast, visited)
        if not sums.clients:
            raise ValueError("from this model every client diverges: train with a smaller client learning rate")
        numbers = decompose(sums, method.clients.correction, chosen.cohort, len(task.train), chosen.all_cohorts)
    return Diagnosis(
        task=task.name,
        method=method.spec,
        objective=task.weighting,
        batch_size=task.batch_size,
        round=round_index,
        federation=len(task.train),
        cohort=chosen.cohort,
        orders=orders,
        client_weights=weights[np.isfinite(weights)],
        numbers=numbers,
    )


class Chosen(NamedTuple):
    """Who is looked at, and in which cohorts."""

    clients: np.ndarray
    cohort: int
    draws: np.ndarray  # (cohorts, clients): how often a client is in a cohort
    probability: np.ndarray  # a client's chance per draw
    all_cohorts: bool


def choose_clients(task: Task, method: Method, server: ServerState, setting: Setting, clients: int) -> Chosen:
    """All clients, or a sample of them, large enough that cohorts differ."""
    there_are = len(task.train)
    cohort = setting.cohort or task.cohort or there_are
    count = min(there_are, clients if cohort == there_are else max(clients, 2 * cohort))
    chosen = np.sort(np.random.default_rng(setting.seed).choice(there_are, count, replace=False))
    bytes_each = 2 * sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(server.params))
    most = int(np.clip(COHORT_BYTES // bytes_each, *COHORTS))
    sizes = np.asarray(task.client_weights("examples"))[chosen]
    return Chosen(chosen, cohort, *draw_cohorts(method.sampling, sizes, min(cohort, count), most, setting.seed))


def draw_cohorts(
    sampling: Sampling, sizes: np.ndarray, cohort: int, most: int, seed: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """(how often each cohort draws each client, a client's chance per draw, whether these are all the cohorts)."""
    if sampling.probability is None:
        raise ValueError(f"sampling {sampling.name!r} has no fixed chance per client: its runs cannot be taken apart")
    clients, chances = len(sizes), sampling.probability(np.asarray(sizes))
    alike = not sampling.with_replacement and np.allclose(chances, chances[0])
    everything = alike and math.comb(clients, cohort) <= most
    if everything:
        chosen = np.array(list(itertools.combinations(range(clients), cohort)))
    else:
        keys, table = jax.random.split(jax.random.key(seed), most), client_sizes(sizes)
        chosen = np.asarray(jax.vmap(lambda key: sampling.draw(key, table, cohort, None).clients)(keys))
    draws = np.zeros((len(chosen), clients))
    np.add.at(draws, (np.arange(len(chosen))[:, None], chosen), 1)
    return draws, chances, everything


def _visits(task: Task, table: Federation, chosen: Chosen, memory_of: Callable[[int], Any]) -> Iterator[VisitedClient]:
    """One client after another, its rows in a buffer of fixed size."""
    window = Window(task.train, places=1, rounds=1)
    real = lambda number: jnp.asarray(number, jnp.result_type(float))
    for place, client in enumerate(chosen.clients):
        columns, starts = window.filled(np.array([client]))
        yield VisitedClient(
            federation=table.with_columns(columns, starts),
            index=jnp.int32(client),
            memory=jax.tree.map(jnp.asarray, memory_of(int(client))),
            probability=real(chosen.probability[place]),
            draws=real(chosen.draws[:, place]),
        )
