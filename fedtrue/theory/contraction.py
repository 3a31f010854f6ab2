"""Assumptions 1 and 2, measured: how fast a client forgets where it started, and how its noise adds up.

h_i(k) = ‖E A_i(x;k) − E A_i(y;k)‖² / ‖x − y‖²        from two starts, on the same batches
q_i(k) = E ‖A_i(x;k) − E A_i(x;k)‖² / σ²              σ² the variance of a whole stochastic gradient, all coordinates
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, local_path, sample_seeds
from fedtrue.theory.root import flat

AT_ONCE = 2**26  # bytes of paths held together: more would leave a CPU's caches, and take longer


class Contraction(NamedTuple):
    """One row a client, one column a number of steps k = 1 … K."""

    h: np.ndarray
    q: np.ndarray | None  # None unless σ² was given


def contraction(
    task: Task,
    optimizer: ClientOptimizer,
    x: Any,
    y: Any,
    steps: int,
    *,
    samples: int = 1,
    noise_variance: float | None = None,
    seed: int = 0,
) -> Contraction:
    """h_i(k) and, given σ² = `noise_variance`, q_i(k), of every client for all k up to `steps`, in one pass."""
    return contraction_of(task, optimizer, steps)(x, y, samples=samples, noise_variance=noise_variance, seed=seed)


def contraction_of(task: Task, optimizer: ClientOptimizer, steps: int) -> Callable[..., Contraction]:
    """`(x, y, *, samples, noise_variance, seed)` → `contraction` between two starts; compiled once for all."""
    with float64():
        path = local_path(task, optimizer, all_clients(task, None, steps), steps)

    def walk(start: Any, seed: Any) -> Any:
        params = path(start, seed).params
        return jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(params)  # (clients, steps, weights)

    @jax.jit
    def summary(x: Any, y: Any, seeds: Any) -> _Summary:
        """Of some seeds: means of A(x) and of A(x) − A(y), and Σ ‖A(x) − mean‖²."""
        from_x, from_y = (jax.vmap(walk, (None, 0))(start, seeds) for start in (x, y))
        mean = from_x.mean(axis=0)
        return _Summary(mean, (from_x - from_y).mean(axis=0), jnp.sum((from_x - mean) ** 2, axis=(0, -1)))

    def measure(x: Any, y: Any, *, samples: int = 1, noise_variance: float | None = None, seed: int = 0) -> Contraction:
        with float64():
            start_x, back = flat(x)
            start_y, _ = flat(y)
            distance = float(np.sum((start_x - start_y) ** 2))
            if distance == 0:
                raise ValueError("contraction needs two different starts: x and y are equal")
            if noise_variance is not None and samples < 2:
                raise ValueError("the variance q needs at least 2 samples: give samples, e.g. 256")
            path_bytes = 2 * len(task.train) * steps * start_x.size * start_x.itemsize  # one seed, both starts
            groups = np.array_split(np.asarray(sample_seeds(samples, seed)), _groups(samples, path_bytes))
            counts = np.array([len(group) for group in groups])
            apart, parts = np.zeros(()), []
            for group in groups:
                part = summary(back(start_x), back(start_y), group)
                apart = apart + len(group) / samples * np.asarray(part.apart)
                if noise_variance is not None:
                    parts.append((np.asarray(part.mean), np.asarray(part.squares)))
        h = np.sum(np.square(apart), axis=-1) / distance
        if noise_variance is None:
            return Contraction(h, None)
        mean = np.average([part_mean for part_mean, _ in parts], axis=0, weights=counts)
        squares = sum(own + n * np.sum((m - mean) ** 2, axis=-1) for n, (m, own) in zip(counts, parts))
        return Contraction(h, np.asarray(squares) / (samples - 1) / noise_variance)

    return measure


def _groups(samples: int, path_bytes: int) -> int:
    """As few as keep each below AT_ONCE, a seed at least in each."""
    return min(samples, -(-samples * path_bytes // AT_ONCE))


class _Summary(NamedTuple):
    mean: Any
    apart: Any
    squares: Any
