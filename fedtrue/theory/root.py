"""Zeros of a small system of equations, r(x) = 0, when the rounds x ← x − r(x) would head for them.

Implicit rounds: (J + I/t) s = r, x' = x − s. With t = 1 that is about one round of the method; t grows while the linear
model holds, and with t → ∞ the step becomes Newton's. Unlike a line search it does not ask that ‖r‖ falls on the way:
an adaptive client's pseudo-gradient is a direction more than a distance.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

STEPS = 400
FIRST_T = 8.0**8  # rounds; nearly a Newton step
TRUST = 0.5  # of ‖r‖: how far the linear model may be off
ILL_CONDITIONED = 1e14
LARGEST = 2000  # unknowns; the Jacobian has this many rows


class Root(NamedTuple):
    """A zero, its Jacobian there, and the last Newton step's length: an estimate of the distance still to go."""

    point: np.ndarray
    jacobian: np.ndarray
    distance: float


def root_finder(residual: Callable[..., Any], tolerance: float = 1e-10) -> Callable[..., Root]:
    """`find(x, *arguments)` solves residual(x, *arguments) = 0 from x; compiled once for all arguments."""

    def twice(x: Any, *more: Any) -> tuple[Any, Any]:
        value = residual(x, *more)
        return value, value  # one to differentiate, one to keep: the residual is compiled once

    jacobian_and_value = jax.jit(jax.jacfwd(twice, has_aux=True))

    def at(x: np.ndarray, more: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        jacobian, r = (np.asarray(array) for array in jacobian_and_value(x, *more))
        return r, jacobian, bool(np.isfinite(r).all() and np.isfinite(jacobian).all())

    def find(x: Any, *more: Any) -> Root:
        x = np.asarray(x, np.float64)
        if x.size > LARGEST:
            raise ValueError(f"fixed points are measured for up to {LARGEST} weights, this model has {x.size}")
        r, jacobian, finite = at(x, more)
        if not finite:
            raise ValueError("no fixed point found: clients diverge from the start; try a smaller client learning rate")
        t = FIRST_T
        for _ in range(STEPS):
            distance = _newton_step_length(jacobian, r)
            if distance <= tolerance * (1 + np.linalg.norm(x)):
                return Root(x, jacobian, distance)
            implicit = jacobian + np.eye(x.size) / t
            if np.linalg.cond(implicit) > ILL_CONDITIONED:
                t = t / 8
                continue
            step = np.linalg.solve(implicit, r)
            new_r, new_jacobian, finite = at(x - step, more)
            surprise = np.linalg.norm(new_r - (r - jacobian @ step))
            if finite and surprise <= TRUST * np.linalg.norm(r):
                x, r, jacobian, t = x - step, new_r, new_jacobian, 8 * t
            else:
                t = t / 8
        raise ValueError(
            f"no fixed point found to {tolerance:g} in {STEPS} steps (pseudo-gradient still {np.linalg.norm(r):.3g}): "
            "try another start, another client learning rate, a larger tolerance, or more samples"
        )

    return find


def _newton_step_length(jacobian: np.ndarray, r: np.ndarray) -> float:
    """‖J⁻¹ r‖: how far the zero is, near it."""
    if np.linalg.cond(jacobian) > ILL_CONDITIONED:
        return np.inf
    return float(np.linalg.norm(np.linalg.solve(jacobian, r)))


def flat(tree: Any) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """A tree of weights as one vector, and the way back."""
    vector, back = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), tree))
    return np.asarray(vector), back
