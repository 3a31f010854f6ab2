"""Solves a small system of equations r(x) = 0 whose solution the iteration x ← x − r(x) approaches.

Implicit rounds: (J + I/t) s = r, x' = x − s. With t = 1 this is about one round of the method; t grows while the linear
model is accurate, and for t → ∞ the step is Newton's. Unlike a line search, this does not require that ‖r‖ decreases in
every step: the pseudo-gradient of adaptive clients tells the direction to the fixed point, but hardly the distance.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike

from fedtrue.types import Array, Params

MAX_STEPS = 400
FIRST_T = 8.0**8  # nearly a Newton step
MAX_MODEL_ERROR = 0.5  # of the linear model, as a share of ‖r‖
MAX_CONDITION_NUMBER = 1e14
MAX_UNKNOWNS = 2000  # the Jacobian has this many rows


class Root(NamedTuple):
    """A solution, the Jacobian there, and the length of the next Newton step: an estimate of the remaining error."""

    point: np.ndarray
    jacobian: np.ndarray
    distance: float


def root_finder(residual: Callable[..., Array], tolerance: float = 1e-10) -> Callable[..., Root]:
    """`find(x, *arguments)` solves residual(x, *arguments) = 0 from x; compiled once for all arguments."""

    def residual_and_aux(x: Array, *arguments: Any) -> tuple[Array, Array]:
        value = residual(x, *arguments)
        return value, value  # as `aux` too, so that value and Jacobian come from one compiled function

    jacobian_and_value = jax.jit(jax.jacfwd(residual_and_aux, has_aux=True))

    def evaluate(x: np.ndarray, arguments: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        jacobian, r = (np.asarray(array) for array in jacobian_and_value(x, *arguments))
        return r, jacobian, bool(np.isfinite(r).all() and np.isfinite(jacobian).all())

    def find(x: ArrayLike, *arguments: Any) -> Root:
        x = np.asarray(x, np.float64)
        if x.size > MAX_UNKNOWNS:
            raise ValueError(f"fixed points are measured for up to {MAX_UNKNOWNS} weights, this model has {x.size}")
        r, jacobian, finite = evaluate(x, arguments)
        if not finite:
            raise ValueError("no fixed point found: clients diverge from the start; try a smaller client learning rate")
        t = FIRST_T
        for _ in range(MAX_STEPS):
            distance = _newton_step_length(jacobian, r)
            if distance <= tolerance * (1 + np.linalg.norm(x)):
                return Root(x, jacobian, distance)
            implicit = jacobian + np.eye(x.size) / t
            if np.linalg.cond(implicit) > MAX_CONDITION_NUMBER:
                t = t / 8
                continue
            step = np.linalg.solve(implicit, r)
            new_r, new_jacobian, finite = evaluate(x - step, arguments)
            model_error = np.linalg.norm(new_r - (r - jacobian @ step))
            if finite and model_error <= MAX_MODEL_ERROR * np.linalg.norm(r):
                x, r, jacobian, t = x - step, new_r, new_jacobian, 8 * t
            else:
                t = t / 8
        raise ValueError(
            f"no fixed point found to tolerance {tolerance:g} in {MAX_STEPS} steps"
            f" (the pseudo-gradient is {np.linalg.norm(r):.3g}): "
            "try another start, another client learning rate, a larger tolerance, or more samples"
        )

    return find


def _newton_step_length(jacobian: np.ndarray, r: np.ndarray) -> float:
    """‖J⁻¹ r‖: the distance to the solution, close to it."""
    if np.linalg.cond(jacobian) > MAX_CONDITION_NUMBER:
        return np.inf
    return float(np.linalg.norm(np.linalg.solve(jacobian, r)))


def flatten(tree: Params) -> tuple[np.ndarray, Callable[[Any], Params]]:
    """A tree of weights as one vector, and the function that turns vectors into such trees."""
    vector, unflatten = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), tree))
    return np.asarray(vector), unflatten
