"""What small cohorts do to the joint correction: it divides a cohort's mean by a cohort's mean, a ratio estimate."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
from fedtrue.theory.operator import all_clients, client_outputs, everyone, initial_params
from fedtrue.theory.root import flat, root_finder

ENUMERATED = 20_000  # cohorts; more are sampled


class CohortBias(NamedTuple):
    """The pseudo-gradient at a point: of everyone, and in the mean over cohorts. Weights are flattened."""

    everyone: np.ndarray
    in_the_mean: np.ndarray
    standard_error: np.ndarray  # of `in_the_mean`; 0 when all cohorts were enumerated
    shift: np.ndarray  # from the fixed point of everyone to that of the mean over cohorts


def cohort_bias(
    task: Task,
    method: Method,
    cohort: int,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    *,
    at: Any = None,
    samples: int = 4096,
    seed: int = 0,
) -> CohortBias:
    """E over cohorts of `cohort` clients against full participation, at weights `at` (None: everyone's fixed point)."""
    clients = len(task.train)
    if not 1 <= cohort <= clients:
        raise ValueError(f"cohort must be between 1 and the {clients} clients there are, not {cohort}")
    if len(method.phases) != 1:
        raise ValueError("cohort_bias measures methods with one phase per round")
    with float64():
        cohorts = _cohorts(method, task.client_weights("examples"), cohort, samples, seed)
        arrays = all_clients(task, method, local_steps, rate_multipliers)
        weights = cohorts.times * (method.weighting.weights(task) if method.weighting else task.client_weights())
        weights = np.concatenate([weights, np.asarray(arrays.weights[METHOD])[None]])  # the last row is everyone
        start, back = flat(initial_params(task))

        def pseudo_gradients(x: Any) -> Any:
            phase, server, context = method.phases[0], method.init(back(x)), everyone(arrays, seed)
            outputs = client_outputs(task, method, phase, arrays, server, seed, context)

            def of_cohort(row: Any) -> Any:
                sums = total(jax.vmap(weigh)(outputs, {**arrays.weights, METHOD: row}, row > 0))
                return ravel_pytree(aggregation.receive(phase, server, sums, context)[1])[0]

            return jax.vmap(of_cohort)(jnp.asarray(weights))

        find = root_finder(lambda x, chances: chances @ pseudo_gradients(x))
        of_everyone = find(start, np.append(np.zeros_like(cohorts.chances), 1.0)).point
        shift = find(of_everyone, np.append(cohorts.chances, 0.0)).point - of_everyone
        x = of_everyone if at is None else flat(at)[0]
        values = np.asarray(jax.jit(pseudo_gradients)(x))
    error = values[:-1].std(axis=0) / np.sqrt(len(cohorts.times)) if cohorts.sampled else np.zeros_like(x)
    return CohortBias(values[-1], cohorts.chances @ values[:-1], error, shift)


class Cohorts(NamedTuple):
    """Cohorts that a method may draw."""

    times: np.ndarray  # (cohorts, clients): how often a client is in it
    chances: np.ndarray  # of each; they add up to 1
    sampled: bool  # not all of them


def _cohorts(method: Method, sizes: np.ndarray, cohort: int, samples: int, seed: int) -> Cohorts:
    """All of them when they are few, else drawn by the method. Drawn by size, a client can be in a cohort twice."""
    clients, repeated = len(sizes), method.sampling.with_replacement
    sampled = math.comb(clients + (cohort - 1 if repeated else 0), cohort) > ENUMERATED
    if sampled:
        keys = jax.random.split(jax.random.key(seed), samples)
        table = client_sizes(sizes)
        chosen = np.asarray(jax.vmap(lambda key: method.sampling.draw(key, table, cohort, None).clients)(keys))
    else:
        combine = itertools.combinations_with_replacement if repeated else itertools.combinations
        chosen = np.array(list(combine(range(clients), cohort)))
    times = np.zeros((len(chosen), clients), int)
    np.add.at(times, (np.arange(len(chosen))[:, None], chosen), 1)
    alike = sampled or not repeated
    chances = np.full(len(times), 1 / len(times)) if alike else _multinomial(times, _chances(method, sizes))
    return Cohorts(times.astype(float), chances, sampled)


def _chances(method: Method, sizes: np.ndarray) -> np.ndarray:
    """Every client's chance per draw."""
    assert method.sampling.probability is not None, "all_clients has checked it"
    return method.sampling.probability(np.asarray(sizes))


def _multinomial(times: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """n! ∏ q_i^{n_i} / n_i! for n independent draws."""
    factorials = np.cumprod([1.0, *range(1, times.sum(axis=1).max() + 1)])
    return factorials[-1] * (shares**times / factorials[times]).prod(axis=1)
