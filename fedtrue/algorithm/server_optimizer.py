"""Server optimizers: ordinary optax transformations of the pseudo-gradient, with the constants of Reddi et al.

ε_s stands outside the root, the accumulator starts at 0, nothing is bias-corrected. Any other optax transformation
may take their place.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedtrue.algorithm.checks import number, schedule

EPSILON = 1e-3  # Reddi et al.'s default degree of adaptivity; the paper tunes it in {1e-7 … 1e-1}


class ServerState(NamedTuple):
    """All the server knows between two rounds."""

    params: Any
    optimizer: Any
    shared: Any  # the clients' synchronised optimizer state, () otherwise


def _adaptive(
    name: str, learning_rate: Any, accumulate: Callable[[Any, Any], Any], beta1: Any, epsilon: Any, v0: Any
) -> optax.GradientTransformation:
    """m' = β₁ m + (1−β₁) Δ,  v' = accumulate(v, Δ),  x' = x − α m' / (√v' + ε_s)."""
    rate = schedule(f"server {name}: learning_rate", learning_rate)
    number(f"server {name}: beta1", beta1, high=1.0)
    number(f"server {name}: epsilon", epsilon)
    number(f"server {name}: initial_accumulator", v0)

    def init(params: Any) -> Any:
        v = jax.tree.map(lambda p: jnp.full_like(p, v0), params)
        return {"momentum": jax.tree.map(jnp.zeros_like, params), "v": v, "count": jnp.zeros((), jnp.int32)}

    def update(pseudo_gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        m = jax.tree.map(lambda m, d: beta1 * m + (1 - beta1) * d, state["momentum"], pseudo_gradient)
        v = jax.tree.map(accumulate, state["v"], pseudo_gradient)
        alpha = rate(state["count"])
        updates = jax.tree.map(lambda m, v: (-alpha * m / (jnp.sqrt(v) + epsilon)).astype(m.dtype), m, v)
        return updates, {"momentum": m, "v": v, "count": state["count"] + 1}

    return optax.GradientTransformation(init, update)


def sgd(learning_rate: Any) -> optax.GradientTransformation:
    """x' = x − α Δ."""
    return optax.sgd(schedule("server sgd: learning_rate", learning_rate))


def momentum(learning_rate: Any, beta: Any = 0.9) -> optax.GradientTransformation:
    """m' = β m + Δ,  x' = x − α m'."""
    return optax.sgd(schedule("server momentum: learning_rate", learning_rate), number("beta", beta, high=1.0))


def adagrad(learning_rate: Any, epsilon: Any = EPSILON, initial_accumulator: Any = 0.0) -> optax.GradientTransformation:
    """v' = v + Δ²,  x' = x − α Δ / (√v' + ε_s)."""
    return _adaptive("adagrad", learning_rate, lambda v, d: v + d**2, 0.0, epsilon, initial_accumulator)


def adam(
    learning_rate: Any, beta1: Any = 0.9, beta2: Any = 0.99, epsilon: Any = EPSILON, initial_accumulator: Any = 0.0
) -> optax.GradientTransformation:
    """v' = β₂ v + (1−β₂) Δ²,  x' = x − α m' / (√v' + ε_s)."""
    number("server adam: beta2", beta2, high=1.0)
    decay = lambda v, d: beta2 * v + (1 - beta2) * d**2
    return _adaptive("adam", learning_rate, decay, beta1, epsilon, initial_accumulator)


def yogi(
    learning_rate: Any, beta1: Any = 0.9, beta2: Any = 0.99, epsilon: Any = EPSILON, initial_accumulator: Any = 0.0
) -> optax.GradientTransformation:
    """v' = v − (1−β₂) sign(v − Δ²) Δ²,  x' = x − α m' / (√v' + ε_s)."""
    number("server yogi: beta2", beta2, high=1.0)
    turn = lambda v, d: v - (1 - beta2) * jnp.sign(v - d**2) * d**2
    return _adaptive("yogi", learning_rate, turn, beta1, epsilon, initial_accumulator)


SERVER_OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adagrad": adagrad,
    "adam": adam,
    "yogi": yogi,
}
