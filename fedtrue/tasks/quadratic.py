"""The paper's quadratic federation: F_i(x) = ½ (x − x_i*)ᵀ H_i (x − x_i*), F = Σ w_i F_i. In float64."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedtrue.data.client_data import ClientData
from fedtrue.spec import named
from fedtrue.tasks.metric import Metric
from fedtrue.tasks.task import Rates, Task
from fedtrue.types import Array, Batch, Sums

RATES = {
    ("sgd", client, correction): Rates(0.01, 1.0)
    for client in ("sgd", "momentum", "adagrad", "adam", "yogi", "rmsprop", "amsgrad", "adabelief")
    for correction in ("none", "local", "joint")
}
FIGURE_1 = {"hessians": [[1.0, 30.0], [20.0, 1.0]], "minima": [[2.0, 1.0], [-1.0, -2.0]]}


@dataclass(frozen=True, kw_only=True)
class Quadratic(Task):
    """The task, with its Hessians, minima and minimiser in closed form."""

    hessians: np.ndarray  # (clients, d, d)
    minima: np.ndarray  # (clients, d)
    objective_weights: np.ndarray  # w_i, which sum to 1
    start: np.ndarray  # the initial x
    noise: float  # σ of the gradients

    @property
    def minimiser(self) -> np.ndarray:
        """x* = (Σ w_i H_i)⁻¹ Σ w_i H_i x_i*.

        >>> quadratic([[1.0], [3.0]], minima=[[0.0], [4.0]]).minimiser.tolist()
        [3.0]
        """
        return _minimiser(self.hessians, self.minima, self.objective_weights)


@named("task", defaults=False)
def quadratic(
    hessians: Sequence[ArrayLike] | None = None,
    minima: Sequence[ArrayLike] | None = None,
    noise: float = 0.0,
    weights: Sequence[float] | None = None,
    start: Sequence[float] | None = None,
    evaluate: bool = False,
) -> Quadratic:
    """One quadratic per client, F_i(x) = ½ (x − x_i*)ᵀ H_i (x − x_i*); no data is needed.

    Args:
        hessians: H_i, one per client: diagonals (clients, d) or matrices (clients, d, d); by default those of Fig. 1.
        minima: x_i*, one per client, (clients, d).
        noise: σ of the normal noise on every coordinate of every gradient.
        weights: w_i of the objective, one per client; by default equal.
        start: the initial x; by default 5 in every coordinate.
        evaluate: record, as the splits `validation` and `test`, the mean of the F_i without noise and the distance from
            the minimiser, at the server's weights. Both are of the same clients: nothing is held out.

    Returns:
        A task whose `minimiser` is known in closed form.

    >>> task = quadratic()  # Fig. 1
    >>> len(task.train), task.start.tolist()
    (2, [5.0, 5.0])
    """
    if hessians is None:
        hessians, minima = FIGURE_1["hessians"], FIGURE_1["minima"]
    h, m = _check_problem(hessians, minima)
    clients, dimension = m.shape
    w = _normalised_weights(weights, clients)
    x0 = _vector("start", start if start is not None else np.full(dimension, 5.0), dimension)
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be a finite number at least 0, not {noise!r}")
    loss = partial(_loss, noise)
    train = ClientData.from_clients([{"hessian": h[i][None], "minimum": m[i][None]} for i in range(clients)])
    minimiser = _minimiser(h, m, w)
    return Quadratic(
        name="quadratic",
        init=lambda key: jnp.asarray(x0),
        loss=loss,
        metrics=partial(_metrics, minimiser) if evaluate else lambda params, batch: loss(params, batch)[1],
        metric_kinds={"distance": Metric(higher_is_better=False)} if evaluate else {},
        train=train,
        validation=train if evaluate else None,
        test=train if evaluate else None,
        batch_size=1,
        evaluation_batch_size=1,
        rounds=600,
        recommended=RATES,
        weighting="uniform" if weights is None else "examples",
        counts={"examples": lambda data: w[data.starts]},  # a client has one row: its index
        float64=True,
        hessians=h,
        minima=m,
        objective_weights=w,
        start=x0,
        noise=float(noise),
    )


def _minimiser(hessians: np.ndarray, minima: np.ndarray, weights: np.ndarray) -> np.ndarray:
    total = np.einsum("i,ijk->jk", weights, hessians)
    return np.linalg.solve(total, np.einsum("i,ijk,ik->j", weights, hessians, minima))


def _metrics(minimiser: np.ndarray, params: Array, batch: Batch) -> Sums:
    """F_i without noise, and ‖x − x*‖, which is the same for every client."""
    distance = jnp.linalg.norm(params - minimiser)
    return {**_loss(0.0, params, batch)[1], "distance": (distance, jnp.ones_like(distance))}


def _loss(noise: float, params: Array, batch: Batch) -> tuple[Array, Sums]:
    from_minimum = params - batch["minimum"][0]
    value = 0.5 * from_minimum @ batch["hessian"][0] @ from_minimum
    if noise:
        value = value + noise * jax.random.normal(batch["key"], params.shape, params.dtype) @ params
    return value, {"loss": (value, jnp.ones_like(value))}


def _check_problem(hessians: Sequence[ArrayLike], minima: Sequence[ArrayLike] | None) -> tuple[np.ndarray, np.ndarray]:
    """The Hessians as matrices (clients, d, d) and the minima (clients, d); a ValueError names what is wrong."""
    if minima is None:
        raise ValueError("minima are missing: give one minimum per client, e.g. minima=[[2.0, 1.0], [-1.0, -2.0]]")
    try:
        matrices = [np.diag(h) if np.ndim(h) == 1 else np.asarray(h, np.float64) for h in hessians]
        points = [np.asarray(m, np.float64) for m in minima]
    except (TypeError, ValueError) as error:
        raise ValueError(f"hessians and minima must be lists of numbers, one entry per client: {error}") from None
    if not matrices or len(matrices) != len(points):
        raise ValueError(f"{len(matrices)} hessians and {len(points)} minima: give one of each per client")
    for i, (h, m) in enumerate(zip(matrices, points)):
        _check_client(i, np.asarray(h, np.float64), m, points[0].size)
    return np.stack(matrices).astype(np.float64), np.stack(points)


def _check_client(i: int, h: np.ndarray, m: np.ndarray, dimension: int) -> None:
    if not (np.isfinite(h).all() and np.isfinite(m).all()):
        raise ValueError(f"client {i}: its Hessian and minimum must be finite numbers")
    if h.ndim != 2 or h.shape[0] != h.shape[1]:
        raise ValueError(f"client {i}: its Hessian must be a diagonal or a square matrix, not of shape {h.shape}")
    if m.shape != (h.shape[0],) or m.size != dimension:
        raise ValueError(
            f"client {i}: its Hessian is {h.shape[0]} × {h.shape[0]}, its minimum has {m.size} entries, "
            f"client 0's {dimension}: they must agree"
        )
    if not np.allclose(h, h.T, rtol=1e-10, atol=0):
        raise ValueError(f"client {i}: its Hessian is not symmetric")
    smallest = np.linalg.eigvalsh(h)[0]
    if smallest <= 0:
        raise ValueError(f"client {i}: its Hessian is not positive definite (smallest eigenvalue {smallest:.3g})")


def _normalised_weights(weights: Sequence[float] | None, clients: int) -> np.ndarray:
    if weights is None:
        return np.full(clients, 1.0 / clients)
    w = _vector("weights", weights, clients)
    if (w < 0).any() or w.sum() == 0:
        raise ValueError(f"weights must be at least 0 and not all 0, not {list(weights)}")
    return w / w.sum()


def _vector(name: str, values: Any, length: int) -> np.ndarray:
    vector = np.asarray(values, np.float64)
    if vector.shape != (length,) or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be {length} finite numbers, not {values!r}")
    return vector
