"""Adam and its variants: momentum, and a decaying accumulator of squares.

    m' = β₁ m + (1−β₁) g,  P = 1/(√v' + ε),  step = P m', bias-corrected

They differ in the accumulator v. Given the P_k the move is linear in the gradients, as for every client optimizer.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import EPSILON, ClientOptimizer, Constants, adaptive, decayed, filled
from fedtrue.algorithm.move import Move, bias_corrected_move, momentum_move
from fedtrue.algorithm.step_options import with_step_options
from fedtrue.spec import named
from fedtrue.types import LearningRate


def _adam_move(name: str, beta1: Any, beta2: Any, bias_correction: bool) -> Move:
    check_float(f"{name}: beta1", beta1, high=1.0)
    check_float(f"{name}: beta2", beta2, high=1.0)
    return bias_corrected_move(beta1, beta2) if bias_correction else momentum_move(beta1, beta1)


def _epsilon_scale(name: str, beta2: Any, bias_correction: bool, after_correction: bool) -> Callable[[Any], Any]:
    """√(1−β₂ᵗ), if ε is added to √(v/(1−β₂ᵗ)):  1 / (√(v/(1−β₂ᵗ)) + ε) = √(1−β₂ᵗ) / (√v + ε √(1−β₂ᵗ)).

    The numerator is in the move, for either place of ε.
    """
    if not after_correction:
        return lambda count: 1.0
    if not bias_correction:
        raise ValueError(f"{name}: epsilon_after_correction=True needs bias_correction=True")
    return lambda count: jnp.sqrt(1 - beta2**count)


@named("client")
@with_step_options
def adam(
    learning_rate: LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = EPSILON,
    initial_accumulator: float = 0.0,
    bias_correction: bool = True,
    lagged: bool = False,
    epsilon_after_correction: bool = False,
) -> ClientOptimizer:
    """m' = β₁ m + (1−β₁) g,  v' = β₂ v + (1−β₂) g²,  P = 1/(√v' + ε),  step = P m', bias-corrected.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.adam(0.1).spec["learning_rate"]
    0.1
    """

    def accumulate(g: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {"v": decayed(state["v"], g, beta2)}

    move = _adam_move("adam", beta1, beta2, bias_correction)
    scale = _epsilon_scale("adam", beta2, bias_correction, epsilon_after_correction)
    constants = Constants(epsilon, initial_accumulator, lagged, scale)
    return adaptive("adam", learning_rate, accumulate, constants, move, beta1)


@named("client")
@with_step_options
def yogi(
    learning_rate: LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = EPSILON,
    initial_accumulator: float = 1.0,
    bias_correction: bool = True,
    lagged: bool = False,
    epsilon_after_correction: bool = False,
) -> ClientOptimizer:
    """v' = v − (1−β₂) sign(v − g²) g²; otherwise Adam, its bias correction too, as in the authors' class.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.yogi(0.1).spec["learning_rate"]
    0.1
    """

    def accumulate(g: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {"v": jax.tree.map(lambda v, g: v - (1 - beta2) * jnp.sign(v - g**2) * g**2, state["v"], g)}

    move = _adam_move("yogi", beta1, beta2, bias_correction)
    scale = _epsilon_scale("yogi", beta2, bias_correction, epsilon_after_correction)
    constants = Constants(epsilon, initial_accumulator, lagged, scale)
    return adaptive("yogi", learning_rate, accumulate, constants, move, beta1)


@named("client")
@with_step_options
def amsgrad(
    learning_rate: LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = EPSILON,
    initial_accumulator: float = 0.0,
    bias_correction: bool = True,
    lagged: bool = False,
    epsilon_after_correction: bool = False,
) -> ClientOptimizer:
    """v' as Adam,  u' = max(u, v'),  P = 1/(√u' + ε): a preconditioner that never grows.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.amsgrad(0.1).spec["learning_rate"]
    0.1
    """

    def accumulate(g: Any, state: dict[str, Any]) -> dict[str, Any]:
        v = decayed(state["v"], g, beta2)
        return {"v": v, "largest": jax.tree.map(jnp.maximum, state["largest"], v)}

    move = _adam_move("amsgrad", beta1, beta2, bias_correction)
    scale = _epsilon_scale("amsgrad", beta2, bias_correction, epsilon_after_correction)
    constants = Constants(epsilon, initial_accumulator, lagged, scale)
    largest = lambda params: {"largest": filled(initial_accumulator)(params)}
    return adaptive("amsgrad", learning_rate, accumulate, constants, move, beta1, "largest", also=largest)


@named("client")
@with_step_options
def adabelief(
    learning_rate: LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = EPSILON,
    initial_accumulator: float = 0.0,
    bias_correction: bool = True,
    lagged: bool = False,
    epsilon_after_correction: bool = False,
) -> ClientOptimizer:
    """b' = β₁ b + (1−β₁) g,  v' = β₂ v + (1−β₂) (g − b')²: the spread of the gradients about what was believed.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.adabelief(0.1).spec["learning_rate"]
    0.1
    """

    def accumulate(g: Any, state: dict[str, Any]) -> dict[str, Any]:
        belief = jax.tree.map(lambda b, g: beta1 * b + (1 - beta1) * g, state["belief"], g)
        return {"v": decayed(state["v"], jax.tree.map(jnp.subtract, g, belief), beta2), "belief": belief}

    move = _adam_move("adabelief", beta1, beta2, bias_correction)
    scale = _epsilon_scale("adabelief", beta2, bias_correction, epsilon_after_correction)
    constants = Constants(epsilon, initial_accumulator, lagged, scale)
    belief = lambda params: {"belief": filled(0.0)(params)}
    return adaptive("adabelief", learning_rate, accumulate, constants, move, beta1, also=belief)
