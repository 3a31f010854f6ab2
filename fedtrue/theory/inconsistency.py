"""The distance of a method's fixed point from the minimiser, by cause: x̃ − x* = lasting + vanishing + noise.

lasting     the limit for η → 0 without gradient noise: the bias that corrections remove
vanishing   the rest at this η without noise: it vanishes with the learning rate
noise       the effect of gradient noise: P_k depends on the g_k it multiplies; neither a smaller learning rate nor a
            correction removes it
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.client_optimizer import ClientOptimizer, sgd
from fedtrue.algorithm.client_update import ClientParts, client_update, client_work
from fedtrue.algorithm.correction import Correction, joint, local
from fedtrue.algorithm.interface import Broadcast, Client, Context, Loss
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.algorithm.report import Report
from fedtrue.algorithm.trace import exact
from fedtrue.precision import float64
from fedtrue.tasks.quadratic import Quadratic, quadratic
from fedtrue.tasks.task import Task
from fedtrue.theory.fixed_point import flat_pseudo_gradient, measured_fixed_point, standard_error
from fedtrue.theory.operator import all_clients, expected, initial_params
from fedtrue.theory.root import flatten, root_finder
from fedtrue.types import Array, Params

LEVELS = 4  # learning rates η/8, η/16 … in the extrapolation to η → 0
FIRST_LEVEL = 1 / 8


class Inconsistency(NamedTuple):
    """x̃ − x* as the sum of three vectors. Weights are flattened."""

    minimiser: np.ndarray
    fixed_point: np.ndarray
    lasting: np.ndarray
    vanishing: np.ndarray
    noise: np.ndarray
    noise_standard_error: np.ndarray
    extrapolation_error: float  # of `lasting`: how much the last level of the extrapolation changed it

    def norms(self) -> dict[str, float]:
        """‖x̃ − x*‖ and the norms of the three parts; these need not add up, as parts can cancel."""
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
    """Split x̃ − x* into the bias that lasts, the part that vanishes with the learning rate, and the effect of noise.

    Args:
        task: whose clients train.
        method_at: the method as a function of the client learning rate; it is also called with smaller, traced rates.
        learning_rate: η, at which the fixed point is taken.
        local_steps: one number, or one per client; without it, the task's local epochs.
        rate_multipliers: γ_i, one per client: client i steps with γ_i η.
        samples: above 1, seeds to measure the noise part with; with 1, gradient noise is left out.
        seed: of those samples.
        tolerance: of the fixed points, relative to 1 + their norm.

    Returns:
        The minimiser, the fixed point and the three parts.

    >>> import fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> method_at = lambda rate: ft.fedopt(ft.client.sgd(rate), correction="none")
    >>> norms = inconsistency(task, method_at, 0.1, local_steps=[1, 3]).norms()
    >>> round(norms["lasting"], 4), round(norms["noise"], 4)  # the limit is 3, the minimiser 2
    (1.0, 0.0)
    """
    with float64():
        noiseless = without_noise(task)
        x_star, unflatten = flatten(minimiser(task))
        clients = all_clients(noiseless, method_at(learning_rate), local_steps, rate_multipliers)

        def residual(x: Array, rate: Array) -> Array:
            return flat_pseudo_gradient(noiseless, method_at(rate), clients, unflatten)(x, 0)

        find = root_finder(residual, tolerance)
        at_rate = find(flatten(initial_params(task))[0], jnp.float64(learning_rate)).point
        limit, extrapolation_error = _limit(find, at_rate, learning_rate)
        with_noise, error = at_rate, np.zeros_like(at_rate)
        if samples > 1:
            clients = all_clients(task, method_at(learning_rate), local_steps, rate_multipliers)
            noisy = flat_pseudo_gradient(task, method_at(learning_rate), clients, unflatten)
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
    """x̃(η) for η → 0 by Richardson extrapolation: the polynomial through decreasing rates, evaluated at 0."""
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


def minimiser(task: Task) -> Params:
    """The minimiser x* of the task's weighted objective.

    For a quadratic it has a closed form; else it is the fixed point of FedAvg with one full-batch step.

    Args:
        task: with at most 2,000 weights, unless it is a quadratic.

    Returns:
        x*.

    >>> import fedtrue as ft
    >>> minimiser(ft.tasks.quadratic(hessians=[[1.0], [3.0]], minima=[[0.0], [4.0]]))
    array([3.])
    """
    if isinstance(task, Quadratic):
        return task.minimiser
    one_step = fedopt(sgd(1.0), correction="none", weighting=task.weighting)
    return measured_fixed_point(without_noise(task), one_step, local_steps=1).params


def without_noise(task: Task) -> Task:
    """The task with full-batch gradients; a quadratic without its noise. A loss that draws from `key` still does."""
    if isinstance(task, Quadratic):
        return quadratic(task.hessians, task.minima, weights=list(task.objective_weights), start=list(task.start))
    return dataclasses.replace(task, batch_size=int(task.train.sizes.max()), accumulate=1)


class Shrinkage(NamedTuple):
    """The factor by which noise and an adaptive preconditioner shrink a gradient G: 1 means unbiased."""

    mean_of_ratios: float  # E[Δ/N] / (η G): the limit of the local correction's mean
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
    """E[Δ/N]/(ηG) and E[Δ]/E[N]/(ηG) for gradients G + σ·N(0, 1), for η → 0.

    The gradient does not depend on x here, so Δ is linear in η and every η gives the limit. Every coordinate is a
    sample.

    Args:
        optimizer: the client optimizer.
        gradient: G.
        noise: σ.
        steps: τ, local steps.
        samples: of which the expectations are means.
        seed: of the noise.

    Returns:
        Both factors, with their standard errors.

    >>> import fedtrue as ft
    >>> round(shrinkage(ft.client.sgd(0.1), noise=0.0, samples=10).mean_of_ratios, 6)  # no noise
    1.0
    """

    sent = _sent(ClientParts(optimizer, exact(), joint()), gradient, noise, steps, jax.random.normal, samples, seed)
    ratio, n = sent["update"], np.broadcast_to(1 / sent["inverse_trace"], (samples,))
    moved = ratio * n
    quotient = moved.mean() / n.mean()
    spread = (moved - quotient * n).std() / n.mean()  # the delta method for a quotient of means
    root = np.sqrt(samples) * abs(gradient)
    return Shrinkage(float(ratio.mean() / gradient), float(quotient / gradient), (ratio.std() / root, spread / root))


class ReportedGradient(NamedTuple):
    """A client's report as a share of the gradient G that it estimates: 1 means unbiased."""

    share: float  # E[report] / G
    standard_error: float


def reported_gradient(
    optimizer: ClientOptimizer,
    report: Report | str = "mean_gradient",
    gradient: float = 1.0,
    noise: float = 1.0,
    steps: int = 10,
    *,
    skewed: bool = False,
    samples: int = 100_000,
    seed: int = 0,
) -> ReportedGradient:
    """E[report]/G for gradients G + σ z, for η → 0.

    The gradient does not depend on x here, as in `shrinkage`.

    Args:
        optimizer: the client optimizer, which decides on the path.
        report: "update", "mean_gradient" or "intercept".
        gradient: G.
        noise: σ.
        steps: τ, local steps.
        skewed: z is exponential with mean 0 and deviation 1; without it, normal.
        samples: of which the expectation is a mean.
        seed: of the noise.

    Returns:
        The share, with its standard error.

    >>> import fedtrue as ft
    >>> seen = reported_gradient(ft.client.adam(0.1), samples=1000)
    >>> bool(abs(seen.share - 1) < 4 * seen.standard_error)
    True
    """
    draw = (lambda key, shape, dtype: jax.random.exponential(key, shape, dtype) - 1) if skewed else jax.random.normal
    reported: Correction = local(report)
    values = _sent(ClientParts(optimizer, exact(), reported), gradient, noise, steps, draw, samples, seed)["update"]
    return ReportedGradient(float(values.mean() / gradient), float(values.std() / np.sqrt(samples) / abs(gradient)))


def _sent(
    parts: ClientParts, gradient: float, noise: float, steps: int, draw: Any, samples: int, seed: int
) -> dict[str, np.ndarray]:
    """What a client with η = 1 sends if its gradients are G + σ z whatever its weights; every weight is a sample."""

    def loss(x: Array, batch: Any) -> tuple[Array, tuple[()]]:
        return jnp.vdot(gradient + noise * draw(batch["key"], x.shape, x.dtype), x), ()

    def send() -> dict[str, Array]:
        keys = jax.random.split(jax.random.key(seed), steps)
        client, context = Client(0, steps, 1.0, 1.0), Context(0, keys[0], 1, 1)
        batch_at = lambda k: {"key": keys[k], "mask": jnp.ones(1)}
        work = client_work(Loss(loss, ()), parts)
        output = client_update(work, Broadcast(jnp.zeros(samples), ()), client, (), batch_at, context)
        return {name: contribution.value for name, contribution in output.contributions.items()}

    with float64():
        return {name: np.asarray(array) for name, array in jax.jit(send)().items()}
