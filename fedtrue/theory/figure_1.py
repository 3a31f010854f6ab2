"""The paper's Figure 1 as numbers: the bias of client adaptivity, and how much of it the corrections remove.

Three clients, one of them far from the other two. Two clients of equal weight would have ∇F₁ = −∇F₂ at the minimum,
hence the same preconditioner there, and Adagrad with equal local steps would have no bias.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm import client_optimizer as client
from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.precision import float64
from fedtrue.tasks.quadratic import Quadratic, quadratic
from fedtrue.theory.fixed_point import measured_fixed_point
from fedtrue.theory.operator import pseudo_gradient, round_operator

LOCAL_STEPS = 5
SGD_RATE = 0.009  # close to the best for FedAvg: the largest curvature of a client is 200, so 0.01 and above diverges
ADAGRAD_RATE = 0.3
DECAY_ROUNDS, DECAY = (200, 400), 0.2
ROUNDS = 600
X1_RANGE, X2_RANGE = (-4.5, 8.5), (-3.2, 3.2)  # of the landscape: all minima and fixed points, with a margin


class FigureMethod(NamedTuple):
    """A method of the figure: its name there, the method as a function of the client learning rate, and that rate."""

    name: str
    at: Callable[[Any], Method]
    learning_rate: float


METHODS = (
    FigureMethod("FedAvg", lambda rate: fedopt(client.sgd(rate), correction="none"), SGD_RATE),
    FigureMethod("local Adagrad", lambda rate: fedopt(client.adagrad(rate), correction="none"), ADAGRAD_RATE),
    FigureMethod(
        "local Adagrad + local correction",
        lambda rate: fedopt(client.adagrad(rate), server.adagrad(1.0), correction="local"),
        ADAGRAD_RATE,
    ),
    FigureMethod("local Adagrad + joint correction", lambda rate: fedopt(client.adagrad(rate)), ADAGRAD_RATE),
)


def problem() -> Quadratic:
    """Ill-conditioned (about 1 : 375) so that adaptivity helps; one client far from the other two."""
    return quadratic(
        hessians=[[0.4, 200.0], [0.3, 150.0], [0.5, 100.0]],
        minima=[[-2.0, -0.5], [-1.0, -1.0], [6.0, 2.0]],
        start=[8.0, 4.0],
    )


def landscape() -> dict[str, Any]:
    """Figure 1a, with learning rates decayed once: the fixed point of each method."""
    task = problem()
    points = {
        name: measured_fixed_point(task, method, LOCAL_STEPS).params for name, method in _decayed_methods().items()
    }
    return {
        "minimiser": task.minimiser.tolist(),
        "client_minima": task.minima.tolist(),
        "rows": [{"method": name, "numbers": _coordinates(point, task.minimiser)} for name, point in points.items()],
    }


def _decayed_methods() -> dict[str, Method]:
    return {method.name: method.at(DECAY * method.learning_rate) for method in METHODS}


def _coordinates(point: np.ndarray, minimiser: np.ndarray) -> dict[str, float]:
    distance = float(np.linalg.norm(point - minimiser))
    return {"x1": float(point[0]), "x2": float(point[1]), "distance from the minimum": distance}


class Field(NamedTuple):
    """‖x − A(x)‖ of each method over the plane, one row per x₂, one column per x₁."""

    x1: np.ndarray
    x2: np.ndarray
    norms: dict[str, np.ndarray]


def landscape_field(resolution: int = 161) -> Field:
    """How far one round moves the server from each point of the plane: the colours of Figure 1a."""
    task = problem()
    x1, x2 = np.linspace(*X1_RANGE, resolution), np.linspace(*X2_RANGE, resolution)
    grid = np.stack(np.meshgrid(x1, x2), axis=-1)
    return Field(x1, x2, {name: _norms(task, method, grid) for name, method in _decayed_methods().items()})


def _norms(task: Quadratic, method: Method, grid: np.ndarray) -> np.ndarray:
    """The pseudo-gradient's length is ‖x − A(x)‖ at server rate 1."""
    with float64():
        points = jnp.asarray(grid.reshape(-1, 2))
        values = jax.jit(jax.vmap(pseudo_gradient(task, method, LOCAL_STEPS)))(points)
        return np.linalg.norm(np.asarray(values), axis=1).reshape(grid.shape[:2])


def curves(rounds: int = ROUNDS) -> dict[str, Any]:
    """Figure 1b: distance to the minimiser per round, the client learning rate decayed at rounds 200 and 400."""
    task = problem()
    distances = {}
    for method in METHODS:
        points = _trajectory(task, method.at(_decayed(method.learning_rate)), rounds)
        distances[method.name] = np.linalg.norm(points - task.minimiser, axis=1)
    shown = sorted({min(r, rounds) for r in (50, *DECAY_ROUNDS, ROUNDS)})
    return {
        "decay_rounds": list(DECAY_ROUNDS),
        "distances": {name: values.tolist() for name, values in distances.items()},
        "rows": [
            {"method": name, "numbers": {f"after {r} rounds": float(values[r]) for r in shown}}
            for name, values in distances.items()
        ],
    }


def _decayed(learning_rate: float) -> Callable[[Any], Any]:
    """η, then η/5 from round 200, η/25 from round 400."""
    return lambda round_index: (
        learning_rate * DECAY ** sum((round_index >= decay_round).astype(jnp.float64) for decay_round in DECAY_ROUNDS)
    )


def _trajectory(task: Quadratic, method: Method, rounds: int) -> np.ndarray:
    """The server's weights before round 0 and after every round."""
    with float64():
        operate = round_operator(task, method, LOCAL_STEPS)

        def body(state: Any, round_index: Any) -> tuple[Any, Any]:
            state = operate(state, 0, round_index)
            return state, state.params

        first = method.init(jnp.asarray(task.start))
        later = jax.jit(lambda state: jax.lax.scan(body, state, jnp.arange(rounds))[1])(first)
        return np.concatenate([task.start[None], np.asarray(later)])
