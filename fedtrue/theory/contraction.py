"""Assumptions 1 and 2, measured: how fast local steps from two starts approach each other, and how noise adds up.

h_i(k) = ‖E A_i(x;k) − E A_i(y;k)‖² / ‖x − y‖²        from two starts, with the same batches
q_i(k) = E ‖A_i(x;k) − E A_i(x;k)‖² / σ²              σ²: variance of a stochastic gradient, summed over coordinates
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, local_path, sample_seeds
from fedtrue.theory.root import flatten
from fedtrue.types import Array, Params

MAX_PATH_BYTES = 2**26  # of paths in one batch: larger batches do not fit a CPU's caches and are slower


class Contraction(NamedTuple):
    """One row per client, one column per number of steps k = 1 … K."""

    h: np.ndarray
    q: np.ndarray | None  # None if σ² was not given


def contraction(
    task: Task,
    optimizer: ClientOptimizer,
    x: Params,
    y: Params,
    steps: int,
    *,
    samples: int = 1,
    noise_variance: float | None = None,
    seed: int = 0,
) -> Contraction:
    """Measure h_i(k) and, given σ², q_i(k) of every client, for all k up to `steps`.

    Args:
        task: whose clients train.
        optimizer: the client optimizer.
        x: the weights of one start.
        y: the weights of the other.
        steps: K, the largest number of local steps.
        samples: batch orders to average over.
        noise_variance: σ²; without it q is not measured.
        seed: of the batch orders.

    Returns:
        h and q, one row per client and one column per k.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [2.0]], minima=[[0.0], [4.0]])
    >>> contraction(task, ft.client.sgd(0.25), np.ones(1), np.zeros(1), steps=2).h.tolist()  # (1 − ηλ)^{2k}
    [[0.5625, 0.31640625], [0.25, 0.0625]]
    """
    return contraction_of(task, optimizer, steps)(x, y, samples=samples, noise_variance=noise_variance, seed=seed)


def contraction_of(task: Task, optimizer: ClientOptimizer, steps: int) -> Callable[..., Contraction]:
    """`contraction` as a function `(x, y, *, samples, noise_variance, seed)`, compiled once for all starts."""
    with float64():
        path = local_path(task, optimizer, all_clients(task, None, steps), steps)

    def weights_along_path(start: Params, seed: Array) -> Array:
        _, params = path(start, seed)
        return jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(params)  # (clients, steps, weights)

    @jax.jit
    def summary(x: Params, y: Params, seeds: Array) -> _Summary:
        """Over these seeds: the means of A(x) and of A(x) − A(y), and Σ ‖A(x) − mean‖²."""
        from_x, from_y = (jax.vmap(weights_along_path, (None, 0))(start, seeds) for start in (x, y))
        mean = from_x.mean(axis=0)
        return _Summary(mean, (from_x - from_y).mean(axis=0), jnp.sum((from_x - mean) ** 2, axis=(0, -1)))

    def measure(
        x: Params, y: Params, *, samples: int = 1, noise_variance: float | None = None, seed: int = 0
    ) -> Contraction:
        with float64():
            start_x, unflatten = flatten(x)
            start_y, _ = flatten(y)
            distance = float(np.sum((start_x - start_y) ** 2))
            if distance == 0:
                raise ValueError("contraction needs two different starts: x and y are equal")
            if noise_variance is not None and samples < 2:
                raise ValueError(f"the variance q needs at least 2 samples, not {samples}: give samples, e.g. 256")
            path_bytes = 2 * len(task.train) * steps * start_x.size * start_x.itemsize  # one seed, both starts
            batches = np.array_split(np.asarray(sample_seeds(samples, seed)), _batch_count(samples, path_bytes))
            counts = np.array([len(batch) for batch in batches])
            difference, parts = np.zeros(()), []
            for batch in batches:
                part = summary(unflatten(start_x), unflatten(start_y), batch)
                difference = difference + len(batch) / samples * np.asarray(part.difference)
                if noise_variance is not None:
                    parts.append((np.asarray(part.mean), np.asarray(part.squares)))
        h = np.sum(np.square(difference), axis=-1) / distance
        if noise_variance is None:
            return Contraction(h, None)
        mean = np.average([part_mean for part_mean, _ in parts], axis=0, weights=counts)
        squares = sum(within + n * np.sum((m - mean) ** 2, axis=-1) for n, (m, within) in zip(counts, parts))
        return Contraction(h, np.asarray(squares) / (samples - 1) / noise_variance)

    return measure


def _batch_count(samples: int, path_bytes: int) -> int:
    """The smallest number of batches of at most MAX_PATH_BYTES each; every batch has at least one seed."""
    return min(samples, -(-samples * path_bytes // MAX_PATH_BYTES))


class _Summary(NamedTuple):
    mean: Array
    difference: Array
    squares: Array
