"""How far a method ends from the minimiser, and why: x̃ − x* = lasting + vanishing + noise.

lasting     what is left as η → 0 without gradient noise: the bias that corrections remove
vanishing   the rest at this η without noise: smaller rates buy it back
noise       what gradient noise adds: P_k depends on the g_k it multiplies; neither rate nor correction removes it
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.client_optimizer import ClientOptimizer, sgd
from fedtrue.algorithm.client_update import ClientParts, client_update, client_work
from fedtrue.algorithm.correction import joint
from fedtrue.algorithm.interface import Broadcast, Client, Context, Loss
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.algorithm.trace import exact
from fedtrue.precision import float64
from fedtrue.tasks.quadratic import Quadratic, quadratic
from fedtrue.tasks.task import Task
from fedtrue.theory.fixed_point import flat_pseudo_gradient, measured_fixed_point, standard_error
from fedtrue.theory.operator import all_clients, expected, initial_params
from fedtrue.theory.root import flat, root_finder

LEVELS = 4  # rates η/8, η/16 … in the extrapolation to η → 0
FIRST_LEVEL = 1 / 8


class Inconsistency(NamedTuple):
    """x̃ − x* and its three parts, as vectors: they add up. Weights are flattened."""

    minimiser: np.ndarray
    fixed_point: np.ndarray
    lasting: np.ndarray
    vanishing: np.ndarray
    noise: np.ndarray
    noise_standard_error: np.ndarray
    extrapolation_error: float  # of `lasting`: how much the last level of the extrapolation still changed it

    def norms(self) -> dict[str, float]:
        """‖x̃ − x*‖ and the lengths of the parts (which need not add up: parts may cancel)."""
        parts = {"lasting": self.lasting, "vanishing": self.vanishing, "noise": self.noise}
        total = {"total": self.fixed_point - self.minimiser}
        return {name: float(np.linalg.norm(part)) for name, part in {**total, **parts}.items()}


def inconsistency(
    task: Task,
    method_at: Callable[[Any], Method],
    learning_rate: float,
    local_steps: int | Sequence[int] | None = None,
    rate_multipliers: Sequence[float] | None = None,
    *,
    samples: int = 1,
    seed: int = 0,
    tolerance: float = 1e-10,
) -> Inconsistency:
    """The parts of ‖x̃ − x*‖ for `method_at(learning_rate)`; `method_at` is called with smaller rates too (traced ones).

    `samples` above 1 measures the noise part; with 1 the task is taken without its noise.
    """
    with float64():
        quiet = without_noise(task)
        x_star, back = flat(minimiser(task))
        clients = all_clients(quiet, method_at(learning_rate), local_steps, rate_multipliers)

        def residual(x: Any, rate: Any) -> Any:
            return flat_pseudo_gradient(quiet, method_at(rate), clients, back)(x, 0)

        find = root_finder(residual, tolerance)
        at_rate = find(flat(initial_params(task))[0], jnp.float64(learning_rate)).point
        limit, extrapolation_error = _limit(find, at_rate, learning_rate)
        with_noise, error = at_rate, np.zeros_like(at_rate)
        if samples > 1:
            clients = all_clients(task, method_at(learning_rate), local_steps, rate_multipliers)
            noisy = flat_pseudo_gradient(task, method_at(learning_rate), clients, back)
            root = root_finder(expected(noisy, samples, seed), tolerance)(at_rate)
            with_noise, error = root.point, standard_error(noisy, root.point, root.jacobian, samples, seed)
    return Inconsistency(
        minimiser=x_star,
        fixed_point=with_noise,
        lasting=limit - x_star,
        vanishing=at_rate - limit,
        noise=with_noise - at_rate,
        noise_standard_error=error,
        extrapolation_error=extrapolation_error,
    )


def _limit(find: Callable[..., Any], start: np.ndarray, learning_rate: float) -> tuple[np.ndarray, float]:
    """x̃(η) for η → 0 by Richardson's extrapolation: the polynomial through decreasing rates, read at 0."""
    rates = [learning_rate * FIRST_LEVEL * 0.5**level for level in range(LEVELS)]
    points = []
    for rate in rates:
        start = find(start, jnp.float64(rate)).point
        points.append(start)
    limits = [_polynomial_at_zero(rates[:n], points[:n]) for n in (LEVELS - 1, LEVELS)]
    return limits[1], float(np.linalg.norm(limits[1] - limits[0]))


def _polynomial_at_zero(nodes: Sequence[float], values: Sequence[np.ndarray]) -> np.ndarray:
    """Lagrange: Σ_j value_j Π_{m≠j} η_m / (η_m − η_j)."""
    total = np.zeros_like(values[0])
    for j, value in enumerate(values):
        others = [node for m, node in enumerate(nodes) if m != j]
        total = total + value * np.prod([node / (node - nodes[j]) for node in others])
    return total


def minimiser(task: Task) -> Any:
    """x* of the task's weighted objective: in closed form, or where FedAvg with one full-batch step stands still."""
    if isinstance(task, Quadratic):
        return task.minimiser
    one_step = fedopt(sgd(1.0), correction="none", weighting=task.weighting)
    return measured_fixed_point(without_noise(task), one_step, local_steps=1).params


def without_noise(task: Task) -> Task:
    """The task with full-batch gradients, a quadratic without its noise; a loss that draws from `key` keeps that."""
    if isinstance(task, Quadratic):
        return quadratic(task.hessians, task.minima, weights=list(task.objective_weights), start=list(task.start))
    return dataclasses.replace(task, batch_size=int(task.train.sizes.max()))


class Shrinkage(NamedTuple):
    """What is left of a gradient G after noise met the preconditioner, as a factor: 1 means unbiased."""

    mean_of_ratios: float  # E[Δ/N] / (η G): what the local correction's mean tends to
    ratio_of_means: float  # E[Δ] / E[N] / (η G)
    standard_errors: tuple[float, float]


def shrinkage(
    optimizer: ClientOptimizer,
    gradient: float = 1.0,
    noise: float = 1.0,
    steps: int = 10,
    *,
    samples: int = 100_000,
    seed: int = 0,
) -> Shrinkage:
    """E[Δ/N]/(ηG) and E[Δ]/E[N]/(ηG) for gradients G + σ·N(0, 1), as η → 0.

    The gradient does not depend on x here, so Δ is linear in η and any η is the limit. Every coordinate is a sample.
    """

    def loss(x: Any, key: Any) -> tuple[Any, tuple[()]]:
        return jnp.vdot(gradient + noise * jax.random.normal(key, x.shape, x.dtype), x), ()

    def measured() -> tuple[Any, Any]:
        work = client_work(Loss(loss, ()), ClientParts(optimizer, exact(), joint()))
        keys = jax.random.split(jax.random.key(seed), steps)
        client, context = Client(0, steps, 1.0, 1.0), Context(0, keys[0], 1, 1)
        sent = client_update(work, Broadcast(jnp.zeros(samples), ()), client, (), lambda k: keys[k], context)
        update, inverse_trace = (sent.contributions[name].value for name in ("update", "inverse_trace"))
        return update, jnp.broadcast_to(1 / inverse_trace, (samples,))

    with float64():
        ratio, n = (np.asarray(array) for array in jax.jit(measured)())
    moved = ratio * n
    quotient = moved.mean() / n.mean()
    spread = (moved - quotient * n).std() / n.mean()  # the delta method for a quotient of means
    root = np.sqrt(samples) * abs(gradient)
    return Shrinkage(float(ratio.mean() / gradient), float(quotient / gradient), (ratio.std() / root, spread / root))
