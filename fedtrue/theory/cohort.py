"""The bias of small cohorts under the joint correction, which divides one cohort mean by another: a ratio estimate."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm import aggregation
from fedtrue.algorithm.aggregation import total, weigh
from fedtrue.algorithm.context import Context
from fedtrue.algorithm.interface import METHOD
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import Sampling, client_sizes
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, client_outputs, full_participation, initial_params
from fedtrue.theory.root import flatten, root_finder
from fedtrue.types import Array, Params

MAX_ENUMERATED_COHORTS = 20_000  # if there are more, they are sampled


class CohortBias(NamedTuple):
    """The pseudo-gradient at a point, with full participation and as a mean over cohorts. Weights are flattened."""

    full_participation: np.ndarray
    mean_over_cohorts: np.ndarray
    standard_error: np.ndarray  # of `mean_over_cohorts`; 0 when all cohorts were enumerated
    shift: np.ndarray  # of the fixed point: that of the mean over cohorts minus that of full participation


def cohort_bias(
    task: Task,
    method: Method,
    cohort: int,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    *,
    at: Params | None = None,
    samples: int = 4096,
    seed: int = 0,
) -> CohortBias:
    """Compare the expected pseudo-gradient of small cohorts with that of full participation.

    Args:
        task: whose clients train.
        method: a method with one phase per round; its sampling draws the cohorts.
        cohort: clients per round.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.
        at: the weights; without them, the fixed point of full participation.
        samples: cohorts to draw where there are too many to enumerate.
        seed: of those draws.

    Returns:
        Both pseudo-gradients, and how far the fixed point moves.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0], [1.0]], minima=[[0.0], [0.0], [3.0]])
    >>> bias = cohort_bias(task, ft.fedopt(ft.client.sgd(0.1)), cohort=2, local_steps=3)
    >>> bool(np.allclose(bias.shift, 0))  # equal steps of SGD: equal denominators in all cohorts
    True
    """
    clients = len(task.train)
    if not 1 <= cohort <= clients:
        raise ValueError(f"cohort must be between 1 and {clients}, the number of clients, not {cohort}")
    if len(method.phases) != 1:
        raise ValueError(
            f"{method.name} has {len(method.phases)} phases per round: cohort_bias measures methods with one phase"
        )
    if method.sampling.uploads:
        raise ValueError(
            f"with sampling {method.sampling.name!r} who uploads depends on the updates, not on the cohort alone: "
            "cohort_bias measures uniform, by_size and poisson"
        )
    with float64():
        arrays = all_clients(task, method, local_steps, rate_multipliers)
        cohorts = _cohorts(method, task.client_weights("examples"), cohort, samples, seed)
        weights = cohorts.counts * (method.weighting.weights(task) if method.weighting else task.client_weights())
        weights = np.concatenate(
            [weights, np.asarray(arrays.weights[METHOD])[None]]
        )  # the last row is full participation
        expected = np.append(np.full(len(cohorts.counts), cohort / clients), 1.0)  # share of the clients in a cohort
        start, unflatten = flatten(initial_params(task))

        def pseudo_gradients(x: Array) -> Array:
            phase, server, context = method.phases[0], method.init(unflatten(x)), full_participation(arrays, seed)
            outputs = client_outputs(task, method, phase, arrays, server, seed, context)

            def of_cohort(row: Array, expected: Array) -> Array:
                sums = total(jax.vmap(weigh)(outputs, {**arrays.weights, METHOD: row}, row > 0))
                if method.sampling.fixed_denominator:
                    sums = aggregation.with_expected_weights(sums, arrays.weights, expected)
                return ravel_pytree(aggregation.receive(phase, server, sums, context)[1])[0]

            return jax.vmap(of_cohort)(jnp.asarray(weights), jnp.asarray(expected))

        find = root_finder(lambda x, probabilities: probabilities @ pseudo_gradients(x))
        fixed_point = find(start, np.append(np.zeros_like(cohorts.probabilities), 1.0)).point
        shift = find(fixed_point, np.append(cohorts.probabilities, 0.0)).point - fixed_point
        x = fixed_point if at is None else flatten(at)[0]
        values = np.asarray(jax.jit(pseudo_gradients)(x))
    error = values[:-1].std(axis=0) / np.sqrt(len(cohorts.counts)) if cohorts.sampled else np.zeros_like(x)
    return CohortBias(values[-1], cohorts.probabilities @ values[:-1], error, shift)


class Cohorts(NamedTuple):
    """Cohorts that a method may draw."""

    counts: np.ndarray  # (cohorts, clients): how often the cohort contains the client
    probabilities: np.ndarray  # one per cohort, with sum 1
    sampled: bool  # False: these are all cohorts


def _cohorts(method: Method, sizes: np.ndarray, cohort: int, samples: int, seed: int) -> Cohorts:
    """All cohorts where they are few, else a sample. Drawn with replacement, a client can be in a cohort twice."""
    clients, sampling = len(sizes), method.sampling
    repeated, rate = sampling.with_replacement, sampling.rate
    possible = 2**clients if rate else math.comb(clients + (cohort - 1 if repeated else 0), cohort)
    if possible > MAX_ENUMERATED_COHORTS:
        counts = drawn_counts(sampling, sizes, cohort, samples, seed)
        return Cohorts(counts, np.full(len(counts), 1 / len(counts)), sampled=True)
    if rate:
        counts = np.array(list(itertools.product([0, 1], repeat=clients)))
        taken, q = counts.sum(axis=1), rate(clients, cohort)
        return Cohorts(counts.astype(float), q**taken * (1 - q) ** (clients - taken), sampled=False)
    combine = itertools.combinations_with_replacement if repeated else itertools.combinations
    counts = cohort_counts(np.array(list(combine(range(clients), cohort))), clients)
    if repeated:
        probabilities = _multinomial(counts.astype(int), _client_probabilities(method, sizes))
    else:
        probabilities = np.full(len(counts), 1 / len(counts))
    return Cohorts(counts, probabilities, sampled=False)


def drawn_counts(sampling: Sampling, sizes: np.ndarray, cohort: int, samples: int, seed: int) -> np.ndarray:
    """(samples, clients): how often each of so many drawn cohorts contains each client."""
    keys, table = jax.random.split(jax.random.key(seed), samples), client_sizes(sizes)
    draws = jax.vmap(lambda key: sampling.draw(Context(0, key, len(sizes), cohort), table, None))(keys)
    return cohort_counts(np.asarray(draws.clients), len(sizes), np.asarray(draws.active))


def cohort_counts(chosen: np.ndarray, clients: int, active: np.ndarray | bool = True) -> np.ndarray:
    """(cohorts, clients): how often each cohort, a row of `chosen`, contains each client."""
    counts = np.zeros((len(chosen), clients))
    np.add.at(counts, (np.arange(len(chosen))[:, None], chosen), np.broadcast_to(active, chosen.shape))
    return counts


def _client_probabilities(method: Method, sizes: np.ndarray) -> np.ndarray:
    """Every client's probability in one draw."""
    assert method.sampling.probability is not None, "all_clients has checked it"
    return method.sampling.probability(np.asarray(sizes))


def _multinomial(counts: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """n! ∏ q_i^{n_i} / n_i! for n independent draws."""
    factorials = np.cumprod([1.0, *range(1, counts.sum(axis=1).max() + 1)])
    return factorials[-1] * (probabilities**counts / factorials[counts]).prod(axis=1)
