"""Fixed points: Theorem 2's closed form on quadratics, and the measured fixed point of any method.

K_i = (I − η_i P_i H_i)^τ_i,  η_i = γ_i η.  The fixed point without correction solves Σ w_i (I − K_i)(x − x_i*) = 0;
with correction it solves Σ w_i N_i⁻¹ (I − K_i)(x − x_i*) = 0, N_i = γ_i τ_i P_i. Local and joint correction have the
same fixed point: the server's denominator does not move it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike

from fedtrue.algorithm.method import Method
from fedtrue.federation import Federation
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, expected, initial_params, one_round, sample_seeds
from fedtrue.theory.root import flatten, root_finder
from fedtrue.types import Array, Params, PyTree


def closed_form_fixed_point(
    hessians: ArrayLike,
    minima: ArrayLike,
    preconditioners: ArrayLike,
    learning_rate: float,
    local_steps: int | Sequence[int],
    rate_multipliers: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    corrected: bool = False,
) -> np.ndarray:
    """Theorem 2: x̃ = (Σ w_i (I − K_i))⁻¹ Σ w_i (I − K_i) x_i*, or its counterpart with correction.

    Args:
        hessians: H_i, one per client; a vector is the diagonal of a matrix.
        minima: x_i*, one per client.
        preconditioners: P_i, one per client, as the Hessians.
        learning_rate: η, of the clients.
        local_steps: τ_i; one number, or one per client.
        rate_multipliers: γ_i, one per client; without them, 1.
        weights: w_i, one per client; without them, equal.
        corrected: with the local or joint correction.

    Returns:
        The fixed point x̃.

    >>> closed_form_fixed_point([[1.0], [1.0]], [[0.0], [4.0]], [[1.0], [1.0]], 0.5, local_steps=[1, 2])
    array([2.4])
    """
    h, p, x, tau, gamma, w = _problem(hessians, preconditioners, minima, local_steps, rate_multipliers, weights)
    one = np.eye(x.shape[1])
    pulls = [one - np.linalg.matrix_power(one - g * learning_rate * p @ h, t) for h, p, t, g in zip(h, p, tau, gamma)]
    if corrected:
        pulls = [np.linalg.solve(g * t * p, pull) for p, t, g, pull in zip(p, tau, gamma, pulls)]
    return _balance(w, np.stack(pulls), x)


def closed_form_limit(
    hessians: ArrayLike,
    minima: ArrayLike,
    preconditioners: ArrayLike,
    local_steps: int | Sequence[int],
    rate_multipliers: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    corrected: bool = False,
) -> np.ndarray:
    """Theorem 2 for η → 0: (Σ w_i γ_i τ_i P_i H_i)⁻¹ Σ w_i γ_i τ_i P_i H_i x_i*; with correction, the minimiser.

    Args:
        hessians: H_i, one per client; a vector is the diagonal of a matrix.
        minima: x_i*, one per client.
        preconditioners: P_i, one per client, as the Hessians.
        local_steps: τ_i; one number, or one per client.
        rate_multipliers: γ_i, one per client; without them, 1.
        weights: w_i, one per client; without them, equal.
        corrected: with the local or joint correction.

    Returns:
        The limit of the fixed point.

    >>> closed_form_limit([[1.0], [1.0]], [[0.0], [4.0]], [[1.0], [1.0]], local_steps=[1, 3])
    array([3.])
    >>> closed_form_limit([[1.0], [1.0]], [[0.0], [4.0]], [[1.0], [1.0]], local_steps=[1, 3], corrected=True)
    array([2.])
    """
    h, p, x, tau, gamma, w = _problem(hessians, preconditioners, minima, local_steps, rate_multipliers, weights)
    pulls = h if corrected else (gamma * tau)[:, None, None] * (p @ h)
    return _balance(w, pulls, x)


def one_round_server_rate(
    learning_rate: float,
    local_steps: int | Sequence[int],
    rate_multipliers: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> float:
    """The server learning rate with which P_i = H_i⁻¹ converges in one round: α = 1 / Σ w_i (1 − (1−η_i)^τ_i).

    K_i = (1−η_i)^τ_i I is then the same in every direction; with η = 1, or η < 1 and many steps, α is 1. Without
    correction the round ends at x̃, a weighted mean of the clients' minima. With equal τ and γ the joint correction
    makes the round a Newton step on F, which ends at the minimiser.

    Args:
        learning_rate: η, of the clients.
        local_steps: τ_i; one number, or one per client.
        rate_multipliers: γ_i, one per client; without them, 1.
        weights: w_i, one per client; without them, equal.

    Returns:
        α.

    >>> one_round_server_rate(0.5, local_steps=1)
    2.0
    """
    clients = max(np.size(local_steps), np.size(rate_multipliers if rate_multipliers is not None else 1.0))
    clients = max(clients, np.size(weights if weights is not None else 1.0))
    gamma = np.broadcast_to(1.0 if rate_multipliers is None else np.asarray(rate_multipliers, np.float64), clients)
    w = np.full(clients, 1.0) if weights is None else np.asarray(weights, np.float64)
    return float(w.sum() / (w @ (1 - (1 - gamma * learning_rate) ** np.asarray(local_steps))))


class FixedPoint(NamedTuple):
    """Weights at which the expected pseudo-gradient is 0."""

    params: Params
    distance: float  # the solver's estimate of the distance to the exact zero
    standard_error: Params  # of `params`, per coordinate, from the samples; 0 with one sample


def measured_fixed_point(
    task: Task,
    method: Method,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    *,
    start: Params | None = None,
    samples: int = 1,
    seed: int = 0,
    tolerance: float = 1e-10,
) -> FixedPoint:
    """The fixed point of any method whose clients keep no state, with full participation.

    It does not depend on the server optimizer.

    Args:
        task: whose clients train.
        method: any method whose clients keep no state.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.
        start: where the search begins; without it, the task's initial weights.
        samples: for tasks with random gradients, how many seeds the pseudo-gradient is averaged over.
        seed: of those samples.
        tolerance: of the solution, relative to 1 + its norm.

    Returns:
        The weights, with estimates of their error.

    Raises:
        ValueError: if no fixed point is found.

    >>> import fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> method = ft.fedopt(ft.client.sgd(0.5), correction="none")
    >>> round(float(measured_fixed_point(task, method, local_steps=[1, 2]).params[0]), 6)
    2.4
    """
    with float64():
        clients = all_clients(task, method, local_steps, rate_multipliers)
        x, unflatten = flatten(initial_params(task) if start is None else start)

        def residual(x: Array, seed: Any) -> Array:
            return flat_pseudo_gradient(task, method, clients, unflatten)(x, seed)

        root = root_finder(expected(residual, samples, seed), tolerance)(x)
        error = standard_error(residual, root.point, root.jacobian, samples, seed)
        return FixedPoint(_numpy(unflatten(root.point)), root.distance, _numpy(unflatten(error)))


def flat_pseudo_gradient(
    task: Task, method: Method, clients: Federation, unflatten: Callable[[Any], Params]
) -> Callable[..., Array]:
    """`(x, seed)` → pseudo-gradient, both as vectors."""
    run = one_round(task, method, clients)
    return lambda x, seed: ravel_pytree(run(method.init(unflatten(x)), seed)[1])[0]


def standard_error(
    residual: Callable[..., Array], x: np.ndarray, jacobian: np.ndarray, samples: int, seed: int
) -> np.ndarray:
    """Of the zero of a mean of `samples` functions: √diag(J⁻¹ C J⁻ᵀ / samples), C = cov of their values."""
    if samples == 1:
        return np.zeros_like(x)
    values = np.asarray(jax.jit(jax.vmap(residual, (None, 0)))(jnp.asarray(x), sample_seeds(samples, seed)))
    moved = np.linalg.solve(jacobian, (values - values.mean(axis=0)).T)
    return np.sqrt((moved**2).sum(axis=1) / (samples - 1) / samples)


def _numpy(tree: PyTree) -> PyTree:
    return jax.tree.map(np.asarray, tree)


def _problem(
    hessians: ArrayLike,
    preconditioners: ArrayLike,
    minima: ArrayLike,
    local_steps: ArrayLike,
    rate_multipliers: ArrayLike | None,
    weights: ArrayLike | None,
) -> tuple[np.ndarray, ...]:
    x = np.asarray(minima, np.float64)
    clients = len(x)
    tau = np.broadcast_to(np.asarray(local_steps), clients)
    gamma = np.broadcast_to(np.asarray(1.0 if rate_multipliers is None else rate_multipliers, np.float64), clients)
    w = np.full(clients, 1.0 / clients) if weights is None else np.asarray(weights, np.float64)
    return _matrices(hessians), _matrices(preconditioners), x, tau, gamma, w / w.sum()


def _matrices(maps: Any) -> np.ndarray:
    """Stacked (clients, d, d), from diagonals or matrices."""
    return np.stack([np.diag(m) if np.ndim(m) == 1 else np.asarray(m, np.float64) for m in maps])


def _balance(w: np.ndarray, pulls: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The x with Σ w_i M_i (x − x_i) = 0."""
    return np.linalg.solve(np.einsum("i,ijk->jk", w, pulls), np.einsum("i,ijk,ik->j", w, pulls, x))
