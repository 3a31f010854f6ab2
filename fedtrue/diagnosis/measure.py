"""Decomposes one round at given weights: samples clients, cohorts and batch orders, and measures them."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.correction import THIS_ROUND
from fedtrue.algorithm.interface import ServerState
from fedtrue.algorithm.method import OWN, TABLE, Method
from fedtrue.algorithm.sampling import Sampling
from fedtrue.diagnosis.clients import Point, SampledClient, flat_state, sum_over_clients, without_momentum
from fedtrue.diagnosis.decompose import Decomposition, decompose
from fedtrue.engine.window import Window
from fedtrue.federation import Federation, federation_of
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.cohort import cohort_counts, drawn_counts
from fedtrue.theory.operator import full_participation
from fedtrue.types import PyTree

CLIENTS = 100  # sampled from a larger federation: the standard error is a tenth of the scatter among clients
ORDERS = 8  # batch orders to average over: the standard error is a third of one round's scatter
MIN_COHORTS, MAX_COHORTS = 16, 4096  # to draw; if there are fewer, all of them are used
MAX_COHORT_BYTES = 2**28  # for the sums of the cohorts: twice the model per cohort

Progress = Callable[[Iterable[SampledClient], int], Iterable[SampledClient]]  # (clients, their number): a progress bar


class Setting(NamedTuple):
    """Settings of the run besides its task and method."""

    cohort: int | None = None
    local_steps: int | Sequence[int] | None = None
    rate_multipliers: Sequence[float] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Diagnosis:
    """A round at a run's model, decomposed."""

    task: str
    method: Any  # its spec
    objective: str  # the task's weighting of clients
    batch_size: int
    round: int
    federation: int  # number of clients
    cohort: int
    orders: int
    client_weights: np.ndarray  # n_i of the sampled clients
    numbers: Decomposition
    control_variates: bool = False  # whether clients learn how they differ from the mean


def measure_round(
    task: Task,
    method: Method,
    server: ServerState,
    memory_of: Callable[[int], PyTree],
    round_index: int,
    setting: Setting,
    clients: int = CLIENTS,
    orders: int = ORDERS,
    progress: Progress = lambda clients, count: clients,
) -> Diagnosis:
    """Measure and decompose one round.

    Args:
        task, method: of the run.
        server: its state before the round.
        memory_of: client → its state from earlier rounds.
        round_index: which round.
        setting: of the run.
        clients: how many to sample, at least.
        orders: batch orders to average over.
        progress: wraps the iteration over clients, for a progress bar.
    """
    check_int("clients", clients, low=1)
    check_int("orders", orders, low=1)
    if method.clients is None or len(method.phases) != 1:
        raise ValueError(
            f"method {method.name!r} cannot be decomposed, as it does not declare the parts of its clients: "
            "diagnose a run of fedopt, or of a method with `clients` and one phase per round"
        )
    if method.upload.names:
        raise ValueError(
            f"a diagnosis decomposes means of what clients compute, and {', '.join(method.upload.names)} changes that: "
            "diagnose a run without it"
        )
    if not method.clients.optimizer.diagonal:
        raise ValueError(
            f"client optimizer {method.clients.optimizer.name!r} has a matrix as preconditioner, and a round is "
            "decomposed weight by weight: diagnose a run with a diagonal one, e.g. adam"
        )
    with float64(task.float64):
        table = federation_of(task, method, setting.local_steps, setting.rate_multipliers, columns={})
        chosen = choose_clients(task, method, server, setting, clients)
        rate = method.learning_rate(round_index)
        point = Point(round_index, setting.seed, orders, rate)
        broadcast = method.phases[0].broadcast(server, full_participation(table, setting.seed, round_index))
        broadcast = without_momentum(method.clients, broadcast)
        sampled = progress(_load_clients(task, table, chosen, memory_of), len(chosen.clients))
        correction, kept = method.clients.correction, flat_state(server.correction, server.params)
        last_reports = kept[TABLE] if correction.table else None
        sums, weights = sum_over_clients(task, method.clients, point, broadcast, sampled, last_reports)
        if method.sampling.fixed_denominator or correction.denominator is not THIS_ROUND:
            # whoever is drawn, the mean is divided by the expected weight, or by an average that is close to it
            expected = min(chosen.cohort, len(chosen.clients)) * sums.weight
            sums = sums._replace(cohort_weights=jnp.full(sums.cohort_weights.shape, expected))
        if not sums.clients:
            raise ValueError("every client diverges from this model: train with a smaller client learning rate")
        numbers = decompose(sums, correction, kept[OWN], chosen.cohort, len(task.train), chosen.all_cohorts)
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
        control_variates=method.clients.rule.corrects,
    )


class Chosen(NamedTuple):
    """The sampled clients and cohorts."""

    clients: np.ndarray
    cohort: int
    draws: np.ndarray  # (cohorts, clients): how often the cohort contains the client
    probability: np.ndarray  # of each client, per draw
    all_cohorts: bool  # whether these are all possible cohorts


def choose_clients(task: Task, method: Method, server: ServerState, setting: Setting, clients: int) -> Chosen:
    """All clients, or a sample of them that is large enough for cohorts to differ."""
    federation = len(task.train)
    cohort = setting.cohort or task.cohort or federation
    count = min(federation, clients if cohort == federation else max(clients, 2 * cohort))
    chosen = np.sort(np.random.default_rng(setting.seed).choice(federation, count, replace=False))
    bytes_per_cohort = 2 * sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(server.params))
    max_cohorts = int(np.clip(MAX_COHORT_BYTES // bytes_per_cohort, MIN_COHORTS, MAX_COHORTS))
    sizes = np.asarray(task.client_weights("examples"))[chosen]
    return Chosen(chosen, cohort, *draw_cohorts(method.sampling, sizes, min(cohort, count), max_cohorts, setting.seed))


def draw_cohorts(
    sampling: Sampling, sizes: np.ndarray, cohort: int, max_cohorts: int, seed: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """(how often each cohort contains each client, the clients' probabilities, whether these are all cohorts)."""
    if sampling.probability is None or sampling.uploads is not None:
        raise ValueError(
            f"sampling {sampling.name!r} has no fixed probability per client, which diagnosis needs: "
            "use uniform, by_size or poisson"
        )
    clients, probabilities = len(sizes), sampling.probability(np.asarray(sizes))
    equally_likely = not sampling.with_replacement and np.allclose(probabilities, probabilities[0])
    enumerate_all = equally_likely and sampling.rate is None and math.comb(clients, cohort) <= max_cohorts
    if not enumerate_all:
        return drawn_counts(sampling, sizes, cohort, max_cohorts, seed), probabilities, False
    return cohort_counts(np.array(list(itertools.combinations(range(clients), cohort))), clients), probabilities, True


def _load_clients(
    task: Task, table: Federation, chosen: Chosen, memory_of: Callable[[int], PyTree]
) -> Iterator[SampledClient]:
    """One client after another, with its rows in a buffer of fixed size."""
    window = Window(task.train, places=1, rounds=1)
    as_float = lambda number: jnp.asarray(number, jnp.result_type(float))
    for place, client in enumerate(chosen.clients):
        columns, starts = window.filled(np.array([client]))
        yield SampledClient(
            federation=table.with_columns(columns, starts),
            client=jnp.int32(client),
            memory=jax.tree.map(jnp.asarray, memory_of(int(client))),
            probability=as_float(chosen.probability[place]),
            draws=as_float(chosen.draws[:, place]),
        )
