"""Client optimizers: a preconditioner, and a move that is linear in the gradients once the preconditioners are given.

    s' = accumulate(g, s)          P = preconditioner(s')  (or of s, when lagged)
    step = move(g, P)              x ← x − γ η step

Keeping the two apart is what makes the exact trace one mechanism for all of them (see `trace.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm import linear
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.move import Move, float_type, momentum_move, plain_move
from fedtrue.algorithm.schedule import round_schedule
from fedtrue.algorithm.step_options import NO_OPTIONS, StepOptions, with_step_options
from fedtrue.spec import DESCRIPTIONS, Part, accepts, named
from fedtrue.types import Array, LearningRate

EPSILON = 1e-7  # the paper's; larger values hide the client's adaptivity


Observe: TypeAlias = Callable[[Any, Any, Any, Callable[[Any], Any]], Any]


@dataclass(frozen=True, eq=False, repr=False)
class ClientOptimizer(Part):
    """What a client does with its gradients."""

    learning_rate: Callable[[Any], Any]  # round → η
    init: Callable[[Any, Any], Any]  # (params, client index) → state: the preconditioner at its constant c
    precondition: Callable[[Any, Any], tuple[Any, Any]]  # (g, state) → (P, new state)
    preconditioner: Callable[[Any, Any], Any]  # (state, g) → P of a state that g has not entered
    move: Move
    beta1: Any = 0.0  # for the paper's trace
    adaptive: bool = False  # whether P depends on the gradients
    bounded: bool = True  # whether P, and so a step's trace, is bounded whatever the gradients
    diagonal: bool = True  # whether P has one number per weight, and no matrix
    per_client: bool = False  # whether clients begin with different states, which a server cannot average
    options: StepOptions = NO_OPTIONS
    observe: Observe | None = None  # before `precondition`: (state, x, g, weights → gradient of this batch) → state


class Constants(NamedTuple):
    """What every adaptive optimizer has: P = 1/(√v + ε), v₀, and whether P waits for the next gradient."""

    epsilon: Any
    initial_accumulator: Any
    lagged: bool
    epsilon_scale: Callable[[Any], Any] = lambda count: 1.0  # v's number of steps → what ε is multiplied by


def adaptive(
    name: str,
    learning_rate: Any,
    accumulate: Callable[[Any, dict[str, Any]], dict[str, Any]],
    constants: Constants,
    move: Move | None = None,
    beta1: Any = 0.0,
    accumulator: str = "v",
    also: Callable[[Any], dict[str, Any]] = lambda params: {},
) -> ClientOptimizer:
    """P = 1/(√v + ε), from the accumulator v with this gradient in it or (lagged) before it entered.

    `accumulate(g, state)` returns what it changes; the state counts its steps, for bias correction.
    """
    epsilon, initial_accumulator, lagged, epsilon_scale = constants
    check_float(f"{name}: epsilon", epsilon)
    check_float(f"{name}: initial_accumulator", initial_accumulator)
    starts_at_zero = not isinstance(initial_accumulator, jax.core.Tracer) and initial_accumulator == 0
    if lagged and starts_at_zero:
        raise ValueError(
            f"{name}: lagged=True takes its first step with P = 1/(√v₀ + ε): set initial_accumulator above 0, e.g. 0.1"
        )

    def init(params: Any, client: Any) -> dict[str, Any]:
        v = filled(initial_accumulator)(params)
        return {"v": v, "count": jnp.zeros((), float_type(params)), **also(params)}

    def preconditioner(state: dict[str, Any], g: Any) -> Any:
        added = epsilon * epsilon_scale(state["count"])
        return jax.tree.map(lambda v: (1.0 / (jnp.sqrt(v) + added)).astype(v.dtype), state[accumulator])

    def precondition(g: Any, state: dict[str, Any]) -> tuple[Any, Any]:
        new_state = {**accumulate(g, state), "count": state["count"] + 1}
        return preconditioner(state if lagged else new_state, g), new_state

    rate = round_schedule(f"{name}: learning_rate", learning_rate)
    move = move or plain_move()
    return ClientOptimizer(rate, init, precondition, preconditioner, move, beta1, True, bounded=not starts_at_zero)


def common_state(client: ClientOptimizer, params: Any) -> Any:
    """The state with which all clients begin, where the server holds it."""
    if client.per_client:
        raise ValueError(
            f"client {client.name!r} begins with a state of its own at every client, and here the server keeps one for "
            "all: use fedopt with client_state 'restart' or 'inherit'"
        )
    return client.init(params, 0)


def filled(value: Any) -> Callable[[Any], Any]:
    """params → arrays in their shapes that hold this value."""
    return lambda params: jax.tree.map(lambda w: jnp.full_like(w, value), params)


def decayed(v: Any, g: Any, beta: Any) -> Any:
    """v' = β v + (1−β) g²."""
    return jax.tree.map(lambda v, g: beta * v + (1 - beta) * g**2, v, g)


DESCRIPTIONS["client"] = {  # of options that several of them take
    "learning_rate": "η, a number, a schedule or a function of the round.",
    "beta": "β of the momentum.",
    "beta1": "β₁ of the momentum.",
    "beta2": "β₂ of the squared gradients.",
    "epsilon": "ε, added to the root.",
    "initial_accumulator": "where v starts in every round.",
    "bias_correction": "correct for the start at 0, as Keras does.",
    "lagged": "take P from the gradients before this step, so that it does not depend on the gradient it multiplies.",
    "epsilon_after_correction": "add ε to √(v/(1−β₂ᵗ)), as PyTorch and optax do; without it to √v, as Keras does.",
}


@named("client")
@with_step_options
def sgd(learning_rate: LearningRate) -> ClientOptimizer:
    """step = g.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.sgd(0.1).spec["learning_rate"]
    0.1
    """
    return ClientOptimizer(
        round_schedule("sgd: learning_rate", learning_rate),
        init=lambda params, client: (),
        precondition=lambda g, state: (linear.identity_like(g), state),
        preconditioner=lambda state, g: linear.identity_like(g),
        move=plain_move(),
    )


@named("client")
@with_step_options
def momentum(
    learning_rate: LearningRate, beta: float = 0.9, dampening: float | None = None, nesterov: bool = False
) -> ClientOptimizer:
    """m' = β m + (1−d) g, step = m' (heavy ball) or β m' + (1−d) g (Nesterov); d = β unless given, as Algorithm 1.

    Args:
        dampening: d, what the new gradient is dampened by; β without it, as Algorithm 1 has it.
        nesterov: look ahead by one momentum step.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.momentum(0.1).spec["learning_rate"]
    0.1
    """
    check_float("momentum: beta", beta, high=1.0)
    dampening = beta if dampening is None else check_float("momentum: dampening", dampening, high=1.0)
    move = momentum_move(beta, dampening, nesterov)
    rate = round_schedule("momentum: learning_rate", learning_rate)
    return replace(sgd(rate), move=move, beta1=beta)


@named("client")
@with_step_options
def adagrad(
    learning_rate: LearningRate, epsilon: float = EPSILON, initial_accumulator: float = 0.1, lagged: bool = False
) -> ClientOptimizer:
    """v' = v + g²,  P = 1/(√v' + ε),  step = P g.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.adagrad(0.1).spec["learning_rate"]
    0.1
    """

    def accumulate(g: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {"v": jax.tree.map(lambda v, g: v + g**2, state["v"], g)}

    constants = Constants(epsilon, initial_accumulator, lagged)
    return adaptive("adagrad", learning_rate, accumulate, constants)


@named("client")
@with_step_options
def rmsprop(
    learning_rate: LearningRate,
    beta2: float = 0.9,
    epsilon: float = EPSILON,
    initial_accumulator: float = 0.0,
    lagged: bool = False,
) -> ClientOptimizer:
    """v' = β₂ v + (1−β₂) g²,  P = 1/(√v' + ε),  step = P g.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.rmsprop(0.1).spec["learning_rate"]
    0.1
    """
    check_float("rmsprop: beta2", beta2, high=1.0)

    def accumulate(g: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {"v": decayed(state["v"], g, beta2)}

    constants = Constants(epsilon, initial_accumulator, lagged)
    return adaptive("rmsprop", learning_rate, accumulate, constants)


@named("client")
@with_step_options
def preconditioned(preconditioners: Array, learning_rate: LearningRate) -> ClientOptimizer:
    """A fixed map P_i per client (Theorem 2): `preconditioners` is (clients, d), diagonals, or (clients, d, d).

    Args:
        preconditioners: one diagonal (clients, d) or matrix (clients, d, d) per client.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.preconditioned([[1.0, 2.0], [3.0, 4.0]], 0.1).name
    'preconditioned'
    """
    maps = np.asarray(preconditioners, np.float64)
    if maps.ndim not in (2, 3) or (maps.ndim == 3 and maps.shape[1] != maps.shape[2]):
        raise ValueError(f"preconditioners must have shape (clients, d) or (clients, d, d), not {maps.shape}")
    if not np.all(np.isfinite(maps)):
        raise ValueError("preconditioners must be finite")

    def init(params: Any, client: Any) -> Any:
        leaves, structure = jax.tree.flatten(params)
        if len(leaves) != 1 or leaves[0].shape != maps.shape[1:2]:
            raise ValueError(f"preconditioned(P) needs params that are one vector of {maps.shape[1]} entries")
        own = jnp.asarray(maps, leaves[0].dtype)[client]
        return jax.tree.unflatten(structure, [linear.Dense(own) if own.ndim == 2 else own])

    rate = round_schedule("preconditioned: learning_rate", learning_rate)
    precondition = lambda g, state: (state, state)
    return replace(
        sgd(rate),
        init=init,
        precondition=precondition,
        preconditioner=lambda state, g: state,
        diagonal=maps.ndim == 2,
        per_client=True,
    )


def _refuse_optax(transformation: Any) -> ClientOptimizer:
    raise ValueError(
        "client cannot be an optax transformation, which hides the preconditioner that corrections need: use a part "
        "such as ft.client.adam(0.01, clip_norm=1.0, weight_decay=1e-4); its learning rate may be an optax schedule, "
        "and the server any optax transformation"
    )


accepts("client", ClientOptimizer, "ft.client.adagrad(0.1)", GradientTransformation=_refuse_optax)
