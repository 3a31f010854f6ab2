"""What small cohorts do to the joint correction: it divides a cohort's mean by a cohort's mean, a ratio estimate."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.aggregation import total, weigh
from fedtrue.algorithm.method import Method
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, client_outputs, initial_params
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
        raise ValueError("cohort_bias measures methods with one phase a round")
    with float64():
        cohorts = _cohorts(method, task, cohort, samples, seed)
        present = np.concatenate([cohorts, np.ones((1, clients), bool)])  # the last row is everyone
        evenly = np.append(np.full(len(cohorts), 1 / len(cohorts)), 0.0)
        arrays = all_clients(task, method.weighting, local_steps, rate_multipliers)
        start, back = flat(initial_params(task))

        def pseudo_gradients(x: Any) -> Any:
            phase, server = method.phases[0], method.init(back(x))
            outputs = client_outputs(task, method, phase, arrays, server, seed)
            sums = lambda row: total(jax.vmap(weigh)(outputs, arrays.weights, row))
            return jax.vmap(lambda row: ravel_pytree(phase.receive(server, sums(row))[1])[0])(jnp.asarray(present))

        find = root_finder(lambda x, shares: shares @ pseudo_gradients(x))
        everyone = find(start, np.append(np.zeros(len(cohorts)), 1.0)).point
        shift = find(everyone, evenly).point - everyone
        x = everyone if at is None else flat(at)[0]
        values = np.asarray(jax.jit(pseudo_gradients)(x))
    sampled = len(cohorts) < math.comb(clients, cohort)
    error = values[:-1].std(axis=0) / np.sqrt(len(cohorts)) if sampled else np.zeros_like(x)
    return CohortBias(values[-1], values[:-1].mean(axis=0), error, shift)


def _cohorts(method: Method, task: Task, cohort: int, samples: int, seed: int) -> np.ndarray:
    """One row a cohort, True where a client is in it: all of them when they are few, else drawn by the method."""
    clients = len(task.train)
    if math.comb(clients, cohort) <= ENUMERATED:
        chosen = np.array(list(itertools.combinations(range(clients), cohort)))
    else:
        keys = jax.random.split(jax.random.key(seed), samples)
        sizes = jnp.asarray(task.client_weights("examples"))
        chosen = np.asarray(jax.vmap(lambda key: method.sample(key, sizes, cohort))(keys))
    present = np.zeros((len(chosen), clients), bool)
    np.put_along_axis(present, chosen, True, axis=1)
    return present
