"""Theorems 1 and 3 as numbers, with the constants of the proofs.

Theorem 1's recursion (thm1_pre_final):  r' ≤ (1 − α a) r + α² c  for  r = E‖x − x̃‖²,  a = 1 − Σ w_i h_i,
c = σ² Σ w_i² q_i  and server rates α ≤ 1. Its other bounds are this recursion solved for a schedule of α.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, local_path


class Recursion(NamedTuple):
    """r' ≤ (1 − α a) r + α² c."""

    a: float
    c: float

    @classmethod
    def of(cls, weights: Any, h: Any, q: Any, noise_variance: float) -> "Recursion":
        """a = 1 − Σ w_i h_i, c = σ² Σ w_i² q_i, with the weights made to sum to 1."""
        w = np.asarray(weights, np.float64) / np.sum(weights)
        a, c = 1 - float(np.sum(w * h)), noise_variance * float(np.sum(w**2 * q))
        if not 0 < a <= 1:
            raise ValueError(f"Theorem 1 needs contractive clients: Σ w h = {1 - a:.3g} must be in [0, 1)")
        return cls(a, c)

    def iterate(self, first: float, server_rates: Sequence[float]) -> np.ndarray:
        """The bound on r after 0, 1, … rounds with these server rates: exact, whatever they are."""
        rates = np.asarray(server_rates, np.float64)
        if (rates > 1).any() or (rates < 0).any():
            raise ValueError("Theorem 1 needs server rates between 0 and 1")
        bounds = [float(first)]
        for alpha in rates:
            bounds.append((1 - alpha * self.a) * bounds[-1] + alpha**2 * self.c)
        return np.asarray(bounds)


def sgd_contraction(learning_rate: float, strong_convexity: float, steps: Any) -> Any:
    """h(k) = (1 − ημ)^{2k}, for η (μ + L) < 2."""
    return (1 - learning_rate * strong_convexity) ** (2 * np.asarray(steps))


def sgd_variance(learning_rate: float, steps: Any) -> Any:
    """q(k) = η² k; σ² stands outside."""
    return learning_rate**2 * np.asarray(steps)


def theorem_1(recursion: Recursion, first: float, rounds: int) -> float:
    """E‖x_{T+1} − x̃‖² ≤ 32 r₀ (1−a)^{T/2} / a + 36 c / (a² T), under `theorem_1_schedule(recursion, rounds)`.

    The proof's exponent and constants; the statement's (1−a)^T is not what the lemma gives.
    """
    a, c = recursion
    return 32 * first * (1 - a) ** (rounds / 2) / a + 36 * c / (a**2 * rounds)


def theorem_1_schedule(recursion: Recursion, rounds: int) -> np.ndarray:
    """The T + 1 server rates behind the bound (Stich 2019, lemma 3): 1 at first, then 2/(2 + a (t − T/2))."""
    a, t = recursion.a, np.arange(rounds + 1)
    if rounds <= 1 / a:
        return np.ones(rounds + 1)
    half = -(-rounds // 2)
    return np.where(t < half, 1.0, 2 / (2 + a * np.maximum(t - half, 0)))


def gd_bound(learning_rate: float, strong_convexity: float, local_steps: int, first: float, rounds: Any) -> Any:
    """Special case GD, server rate 1: ‖x_T − x̃‖² ≤ (1 − ημ)^{2τT} r₀."""
    return sgd_contraction(learning_rate, strong_convexity, local_steps * np.asarray(rounds)) * first


def sgd_schedule(recursion: Recursion, rounds: int) -> np.ndarray:
    """Special case SGD: α_t = 2 / (a (t + β)) = 2 / (2 + a t): β = 2/a is the smallest β that keeps every α ≤ 1."""
    return 2 / (2 + recursion.a * np.arange(rounds))


def sgd_bound(recursion: Recursion, first: float, rounds: Any) -> Any:
    """Special case SGD under `sgd_schedule`: E‖x_T − x̃‖² ≤ ν / (T + β) with ν = max(4c/a², β r₀), β = 2/a.

    The paper has ν = 4c/a² alone (c = η²τσ²/M) and asks β ≤ 4c/(a² r₀); with α ≤ 1 that leaves no β at all unless the
    start is already within r₀ ≤ 2c/a. The same induction carries the larger ν.
    """
    a, c = recursion
    beta = 2 / a
    return max(4 * c / a**2, beta * first) / (np.asarray(rounds) + beta)


class Rates(NamedTuple):
    """Theorem 3's rates. `server` is for our trace, which leaves η out: ητ in the paper's text is τ here."""

    client: float
    server: float


def theorem_3_rates(
    gap: float, smoothness: float, spread: float, largest_step: float, local_steps: int, rounds: int
) -> Rates:
    """η = min(1/(τL), (D / (L² Λ G²))^{1/3} / (τ T^{1/3})), with D = F(x₀) − inf F."""
    tuned = (gap / (smoothness**2 * spread * largest_step**2 * rounds)) ** (1 / 3)
    return Rates(min(1 / smoothness, tuned) / local_steps, float(local_steps))


def theorem_3(
    gap: float,
    smoothness: float,
    spread: float,
    largest_step: float,
    learning_rate: float,
    local_steps: int,
    rounds: int,
) -> float:
    """Mean over t < T of ‖∇F(x_t)‖² ≤ 2D/(ητT) + L² Λ G² η² τ², for any η ≤ 1/(τL); hence their minimum too.

    With `theorem_3_rates` it is at most 2DL/T + 3 (D² L² Λ G² / T²)^{1/3}; the paper's last line drops the 2 and 3.
    """
    reach = learning_rate * local_steps
    if reach * smoothness > 1 + 1e-12:
        raise ValueError(f"Theorem 3 needs η τ L ≤ 1, not {reach * smoothness:.3g}")
    return 2 * gap / (reach * rounds) + smoothness**2 * spread * largest_step**2 * reach**2


class Constants(NamedTuple):
    """Theorem 3's assumptions, measured."""

    spread: float  # Λ = max τ ‖P_k / N‖: 1 when all steps weigh the same
    largest_step: float  # G = max ‖P_k g_k‖


def measured_constants(task: Task, optimizer: ClientOptimizer, points: Any, local_steps: int) -> Constants:
    """Λ and G over the local steps of all clients from all `points` (stacked server weights, e.g. of a run)."""
    if jax.tree.leaves(jax.eval_shape(lambda: optimizer.move.init(jnp.zeros(1)))):
        raise ValueError(f"{optimizer.name} has momentum: Theorem 3's constants are measured for optimizers without")
    with float64():
        path = local_path(task, optimizer, all_clients(task, None, local_steps), local_steps, with_trace=True)

        def at(x: Any) -> tuple[Any, Any]:
            states = path(x)
            sums = states.trace["total"]  # Σ P up to each step; axes (clients, steps, …)
            own = jax.tree.map(lambda n: jnp.diff(n, axis=1, prepend=0), sums)
            shares = jax.tree.map(lambda p, n: jnp.max(p / n[:, -1:]), own, sums)
            moves = jax.tree.map(
                lambda after, before: jnp.diff(after, axis=1, prepend=jnp.broadcast_to(before, after[:, :1].shape)),
                states.params,
                x,
            )
            lengths = sum(jnp.sum(m**2, axis=tuple(range(2, m.ndim))) for m in jax.tree.leaves(moves))
            return jnp.max(jnp.stack(jax.tree.leaves(shares))), jnp.sqrt(jnp.max(lengths)) / optimizer.learning_rate(0)

        shares, lengths = jax.jit(lambda points: jax.lax.map(at, points))(jax.tree.map(jnp.asarray, points))
        return Constants(float(local_steps * jnp.max(shares)), float(jnp.max(lengths)))
