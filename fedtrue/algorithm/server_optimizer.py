"""Server optimizers: ordinary optax transformations of the pseudo-gradient, with the constants of Reddi et al.

ε_s stands outside the root, the accumulator starts at 0, nothing is bias-corrected unless asked for. Any other optax
transformation may take their place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.schedule import round_schedule
from fedtrue.spec import DESCRIPTIONS, FACTORIES, Part, accepts, named, unnamed, with_spec
from fedtrue.types import LearningRate

EPSILON = 1e-3  # Reddi et al.'s default degree of adaptivity; the paper tunes it in {1e-7 … 1e-1}


@dataclass(frozen=True, eq=False, repr=False)
class ServerOptimizer(Part):
    """An optax transformation that knows its name and options."""

    init: Callable[[Any], Any]  # params → state
    update: Callable[..., tuple[Any, Any]]  # (pseudo_gradient, state, params) → (updates, state)


def from_optax(transformation: optax.GradientTransformation) -> ServerOptimizer:
    """Any optax transformation as a server optimizer; records name it, but cannot build it again."""
    wrapped = ServerOptimizer(transformation.init, transformation.update)
    return with_spec(wrapped, unnamed(transformation.update))


def _adaptive(
    name: str,
    learning_rate: Any,
    accumulate: Callable[[Any, Any], Any],
    beta1: Any,
    epsilon: Any,
    v0: Any,
    bias_correction: Callable[[Any], Any] = lambda count: 1.0,
) -> ServerOptimizer:
    """m' = β₁ m + (1−β₁) Δ,  v' = accumulate(v, Δ),  x' = x − α b_t m' / (√v' + ε_s),  b_t = bias_correction(t)."""
    rate = round_schedule(f"server {name}: learning_rate", learning_rate)
    check_float(f"server {name}: beta1", beta1, high=1.0)
    check_float(f"server {name}: epsilon", epsilon)
    check_float(f"server {name}: initial_accumulator", v0)

    def init(params: Any) -> Any:
        v = jax.tree.map(lambda p: jnp.full_like(p, v0), params)
        return {"momentum": jax.tree.map(jnp.zeros_like, params), "v": v, "count": jnp.zeros((), jnp.int32)}

    def update(pseudo_gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        m = jax.tree.map(lambda m, d: beta1 * m + (1 - beta1) * d, state["momentum"], pseudo_gradient)
        v = jax.tree.map(accumulate, state["v"], pseudo_gradient)
        alpha = rate(state["count"]) * bias_correction(state["count"] + 1)
        updates = jax.tree.map(lambda m, v: (-alpha * m / (jnp.sqrt(v) + epsilon)).astype(m.dtype), m, v)
        return updates, {"momentum": m, "v": v, "count": state["count"] + 1}

    return ServerOptimizer(init, update)


DESCRIPTIONS["server"] = {  # of options that several of them take
    "learning_rate": "α, a number, a schedule or a function of the round.",
    "beta": "β of the momentum.",
    "beta1": "β₁ of the momentum.",
    "beta2": "β₂ of the squared gradients.",
    "epsilon": "ε_s, added to the root: the degree of adaptivity.",
    "initial_accumulator": "where v starts in round 0.",
}


@named("server")
def sgd(learning_rate: LearningRate = 1.0) -> ServerOptimizer:
    """x' = x − α Δ.

    Returns:
        A server optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.server.sgd(0.1).spec["learning_rate"]
    0.1
    """
    return from_optax(optax.sgd(round_schedule("server sgd: learning_rate", learning_rate)))


@named("server")
def momentum(learning_rate: LearningRate, beta: float = 0.9) -> ServerOptimizer:
    """m' = β m + Δ,  x' = x − α m'.

    Returns:
        A server optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.server.momentum(0.1).spec["learning_rate"]
    0.1
    """
    rate = round_schedule("server momentum: learning_rate", learning_rate)
    return from_optax(optax.sgd(rate, check_float("server momentum: beta", beta, high=1.0)))


@named("server")
def adagrad(learning_rate: LearningRate, epsilon: float = EPSILON, initial_accumulator: float = 0.0) -> ServerOptimizer:
    """v' = v + Δ²,  x' = x − α Δ / (√v' + ε_s).

    Returns:
        A server optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.server.adagrad(0.1).spec["learning_rate"]
    0.1
    """
    return _adaptive("adagrad", learning_rate, lambda v, d: v + d**2, 0.0, epsilon, initial_accumulator)


@named("server")
def adam(
    learning_rate: LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = EPSILON,
    initial_accumulator: float = 0.0,
    bias_correction: bool = False,
) -> ServerOptimizer:
    """v' = β₂ v + (1−β₂) Δ²,  x' = x − α m' / (√v' + ε_s), in round t with bias correction α √(1−β₂ᵗ) / (1−β₁ᵗ) for α.

    Args:
        bias_correction: as Keras does it, not of ε_s; with β₂ = 0.999 it is the server Adam of the paper's authors.

    Returns:
        A server optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.server.adam(0.1).spec["learning_rate"]
    0.1
    """
    check_float("server adam: beta2", beta2, high=1.0)
    decay = lambda v, d: beta2 * v + (1 - beta2) * d**2
    if not bias_correction:
        return _adaptive("adam", learning_rate, decay, beta1, epsilon, initial_accumulator)
    corrected = lambda t: jnp.sqrt(1 - jnp.power(beta2, t)) / (1 - jnp.power(beta1, t))
    return _adaptive("adam", learning_rate, decay, beta1, epsilon, initial_accumulator, corrected)


@named("server")
def yogi(
    learning_rate: LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = EPSILON,
    initial_accumulator: float = 0.0,
) -> ServerOptimizer:
    """v' = v − (1−β₂) sign(v − Δ²) Δ²,  x' = x − α m' / (√v' + ε_s).

    Returns:
        A server optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.server.yogi(0.1).spec["learning_rate"]
    0.1
    """
    check_float("server yogi: beta2", beta2, high=1.0)
    turn = lambda v, d: v - (1 - beta2) * jnp.sign(v - d**2) * d**2
    return _adaptive("yogi", learning_rate, turn, beta1, epsilon, initial_accumulator)


SERVER_OPTIMIZERS = FACTORIES["server"]
accepts("server", ServerOptimizer, "ft.server.sgd(1.0)", GradientTransformation=from_optax)
