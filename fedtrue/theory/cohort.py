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
from fedtrue.algorithm.interface import METHOD
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.sampling import client_sizes
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
    with float64():
        cohorts = _cohorts(method, task.client_weights("examples"), cohort, samples, seed)
        arrays = all_clients(task, method, local_steps, rate_multipliers)
        weights = cohorts.counts * (method.weighting.weights(task) if method.weighting else task.client_weights())
        weights = np.concatenate(
            [weights, np.asarray(arrays.weights[METHOD])[None]]
        )  # the last row is full participation
        start, unflatten = flatten(initial_params(task))

        def pseudo_gradients(x: Array) -> Array:
            phase, server, context = method.phases[0], method.init(unflatten(x)), full_participation(arrays, seed)
            outputs = client_outputs(task, method, phase, arrays, server, seed, context)

            def of_cohort(row: Array) -> Array:
                sums = total(jax.vmap(weigh)(outputs, {**arrays.weights, METHOD: row}, row > 0))
                return ravel_pytree(aggregation.receive(phase, server, sums, context)[1])[0]

            return jax.vmap(of_cohort)(jnp.asarray(weights))

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
    clients, repeated = len(sizes), method.sampling.with_replacement
    sampled = math.comb(clients + (cohort - 1 if repeated else 0), cohort) > MAX_ENUMERATED_COHORTS
    if sampled:
        keys = jax.random.split(jax.random.key(seed), samples)
        table = client_sizes(sizes)
        chosen = np.asarray(jax.vmap(lambda key: method.sampling.draw(key, table, cohort, None).clients)(keys))
    else:
        combine = itertools.combinations_with_replacement if repeated else itertools.combinations
        chosen = np.array(list(combine(range(clients), cohort)))
    counts = np.zeros((len(chosen), clients), int)
    np.add.at(counts, (np.arange(len(chosen))[:, None], chosen), 1)
    if sampled or not repeated:
        probabilities = np.full(len(counts), 1 / len(counts))
    else:
        probabilities = _multinomial(counts, _client_probabilities(method, sizes))
    return Cohorts(counts.astype(float), probabilities, sampled)


def _client_probabilities(method: Method, sizes: np.ndarray) -> np.ndarray:
    """Every client's probability in one draw."""
    assert method.sampling.probability is not None, "all_clients has checked it"
    return method.sampling.probability(np.asarray(sizes))


def _multinomial(counts: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """n! ∏ q_i^{n_i} / n_i! for n independent draws."""
    factorials = np.cumprod([1.0, *range(1, counts.sum(axis=1).max() + 1)])
    return factorials[-1] * (probabilities**counts / factorials[counts]).prod(axis=1)
