"""Where a method ends up: Theorem 2's closed form on quadratics, and the measured fixed point of any method.

K_i = (I − η_i P_i H_i)^τ_i,  η_i = γ_i η.  Uncorrected clients settle at Σ w_i (I − K_i)(x − x_i*) = 0; corrected ones
(local or joint: what the server divides by moves no zero) at Σ w_i N_i⁻¹ (I − K_i)(x − x_i*) = 0, N_i = γ_i τ_i P_i.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedtrue.algorithm.method import Method
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, expected, initial_params, one_round, sample_seeds
from fedtrue.theory.root import flat, root_finder


def closed_form_fixed_point(
    hessians: Any,
    minima: Any,
    preconditioners: Any,
    learning_rate: float,
    local_steps: int | Sequence[int],
    rate_multipliers: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    corrected: bool = False,
) -> np.ndarray:
    """Theorem 2: x̃ = (Σ w_i (I − K_i))⁻¹ Σ w_i (I − K_i) x_i*, or its corrected twin."""
    h, p, x, tau, gamma, w = _problem(hessians, preconditioners, minima, local_steps, rate_multipliers, weights)
    one = np.eye(x.shape[1])
    pulls = [one - np.linalg.matrix_power(one - g * learning_rate * p @ h, t) for h, p, t, g in zip(h, p, tau, gamma)]
    if corrected:
        pulls = [np.linalg.solve(g * t * p, pull) for p, t, g, pull in zip(p, tau, gamma, pulls)]
    return _balance(w, np.stack(pulls), x)


def closed_form_limit(
    hessians: Any,
    minima: Any,
    preconditioners: Any,
    local_steps: int | Sequence[int],
    rate_multipliers: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    corrected: bool = False,
) -> np.ndarray:
    """Theorem 2 as η → 0: (Σ w_i γ_i τ_i P_i H_i)⁻¹ Σ w_i γ_i τ_i P_i H_i x_i*; corrected, the minimiser itself."""
    h, p, x, tau, gamma, w = _problem(hessians, preconditioners, minima, local_steps, rate_multipliers, weights)
    pulls = h if corrected else (gamma * tau)[:, None, None] * (p @ h)
    return _balance(w, pulls, x)


def one_round_server_rate(
    learning_rate: float,
    local_steps: int | Sequence[int],
    rate_multipliers: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> float:
    """The server rate with which P_i = H_i⁻¹ needs one round from anywhere: α = 1 / Σ w_i (1 − (1−η_i)^τ_i).

    K_i = (1−η_i)^τ_i I is then the same in every direction; with η = 1, or η < 1 and many steps, α is 1. What one round
    reaches is x̃: a weighted mean of the clients' minima without correction. With equal τ and γ the joint correction
    turns the same round into Newton's step on F, and it reaches the minimiser.
    """
    clients = max(np.size(local_steps), np.size(rate_multipliers if rate_multipliers is not None else 1.0))
    clients = max(clients, np.size(weights if weights is not None else 1.0))
    gamma = np.broadcast_to(1.0 if rate_multipliers is None else np.asarray(rate_multipliers, np.float64), clients)
    w = np.full(clients, 1.0) if weights is None else np.asarray(weights, np.float64)
    return float(w.sum() / (w @ (1 - (1 - gamma * learning_rate) ** np.asarray(local_steps))))


class FixedPoint(NamedTuple):
    """Weights at which the expected pseudo-gradient is 0."""

    params: Any
    distance: float  # the solver's estimate of what is missing to the exact zero
    standard_error: Any  # of `params`, by coordinate, from the samples; 0 when one sample says all


def measured_fixed_point(
    task: Task,
    method: Method,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    *,
    start: Any = None,
    samples: int = 1,
    seed: int = 0,
    tolerance: float = 1e-10,
) -> FixedPoint:
    """The fixed point of any restarting method with everyone taking part, whatever its server optimizer.

    For noisy tasks the operator is the mean over `samples` seeds, the same at every x. ValueError if none is found.
    """
    with float64():
        clients = all_clients(task, method, local_steps, rate_multipliers)
        x, back = flat(initial_params(task) if start is None else start)

        def residual(x: Any, seed: Any) -> Any:
            return flat_pseudo_gradient(task, method, clients, back)(x, seed)

        root = root_finder(expected(residual, samples, seed), tolerance)(x)
        error = standard_error(residual, root.point, root.jacobian, samples, seed)
        return FixedPoint(_numpy(back(root.point)), root.distance, _numpy(back(error)))


def flat_pseudo_gradient(task: Task, method: Method, clients: Any, back: Callable[[Any], Any]) -> Callable[..., Any]:
    """`(x, seed)` → pseudo-gradient, both as vectors."""
    run = one_round(task, method, clients)
    return lambda x, seed: ravel_pytree(run(method.init(back(x)), seed)[1])[0]


def standard_error(
    residual: Callable[..., Any], x: np.ndarray, jacobian: np.ndarray, samples: int, seed: int
) -> np.ndarray:
    """Of the zero of a mean of `samples` functions: √diag(J⁻¹ C J⁻ᵀ / samples), C the covariance of their values."""
    if samples == 1:
        return np.zeros_like(x)
    values = np.asarray(jax.jit(jax.vmap(residual, (None, 0)))(jnp.asarray(x), sample_seeds(samples, seed)))
    moved = np.linalg.solve(jacobian, (values - values.mean(axis=0)).T)
    return np.sqrt((moved**2).sum(axis=1) / (samples - 1) / samples)


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _problem(
    hessians: Any, preconditioners: Any, minima: Any, local_steps: Any, rate_multipliers: Any, weights: Any
) -> tuple[np.ndarray, ...]:
    x = np.asarray(minima, np.float64)
    clients = len(x)
    tau = np.broadcast_to(np.asarray(local_steps), clients)
    gamma = np.broadcast_to(np.asarray(1.0 if rate_multipliers is None else rate_multipliers, np.float64), clients)
    w = np.full(clients, 1.0 / clients) if weights is None else np.asarray(weights, np.float64)
    return _matrices(hessians), _matrices(preconditioners), x, tau, gamma, w / w.sum()


def _matrices(maps: Any) -> np.ndarray:
    """(clients, d, d), from diagonals or matrices."""
    return np.stack([np.diag(m) if np.ndim(m) == 1 else np.asarray(m, np.float64) for m in maps])


def _balance(w: np.ndarray, pulls: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The x with Σ w_i M_i (x − x_i) = 0."""
    return np.linalg.solve(np.einsum("i,ijk->jk", w, pulls), np.einsum("i,ijk,ik->j", w, pulls, x))
