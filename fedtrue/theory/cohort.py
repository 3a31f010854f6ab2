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
from fedtrue.theory.fixed_point import measured_fixed_point
from fedtrue.theory.operator import all_clients, client_outputs
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
        everyone = measured_fixed_point(task, method, local_steps, rate_multipliers, seed=seed).params
        x, back = flat(everyone if at is None else at)
        present = _cohorts(method, task, cohort, samples, seed)
        everybody = np.ones((1, clients), bool)
        arrays = all_clients(task, method.weighting, local_steps, rate_multipliers)

        def pseudo_gradients(x: Any, present: Any) -> Any:
            phase, server = method.phases[0], method.init(back(x))
            outputs = client_outputs(task, method, phase, arrays, server, seed)
            received = lambda row: phase.receive(server, total(jax.vmap(weigh)(outputs, arrays.weights, row)))
            return jax.vmap(lambda row: ravel_pytree(received(row)[1])[0])(present)

        values = np.asarray(jax.jit(pseudo_gradients)(x, present))
        full = np.asarray(jax.jit(pseudo_gradients)(x, everybody))[0]
        find = root_finder(lambda x: jnp.mean(pseudo_gradients(x, present), axis=0))
        shift = find(flat(everyone)[0]).point - flat(everyone)[0]
        sampled = len(present) < math.comb(clients, cohort)
        error = values.std(axis=0) / np.sqrt(len(values)) if sampled else np.zeros_like(full)
        return CohortBias(full, values.mean(axis=0), error, shift)


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
