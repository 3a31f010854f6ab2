"""Theorem 1's bounds, with the constants of the proof.

The recursion (thm1_pre_final):  r' ≤ (1 − α a) r + α² c  for  r = E‖x − x̃‖²,  a = 1 − Σ w_i h_i,
c = σ² Σ w_i² q_i  and server learning rates α ≤ 1. The other bounds solve this recursion for a schedule of α.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

MAX_NOISE_FACTOR = 2 / -math.expm1(-2)  # 2.313…: the supremum of `sgd_noise_factor` over ημτ ≤ 1; the paper rounds to 3


class Recursion(NamedTuple):
    """Theorem 1's recursion r' ≤ (1 − α a) r + α² c, for the expected squared distance r to the fixed point.

    >>> Recursion(a=0.5, c=0.0).iterate(8.0, [1.0, 1.0, 1.0]).tolist()
    [8.0, 4.0, 2.0, 1.0]
    """

    a: float  # 1 − Σ w_i h_i: contraction per round
    c: float  # σ² Σ w_i² q_i: noise per round

    @classmethod
    def of(cls, weights: ArrayLike, h: ArrayLike, q: ArrayLike, noise_variance: float) -> "Recursion":
        """a = 1 − Σ w_i h_i and c = σ² Σ w_i² q_i.

        Args:
            weights: w_i, one per client; they are normalised to sum 1.
            h: contraction factors h_i, one per client, e.g. from `sgd_contraction` or `contraction`.
            q: noise factors q_i, one per client, e.g. from `sgd_variance` or `contraction`.
            noise_variance: σ², the variance of a stochastic gradient, summed over coordinates.

        >>> Recursion.of([1, 3], h=[0.5, 0.5], q=[1.0, 1.0], noise_variance=2.0)
        Recursion(a=0.5, c=1.25)
        """
        w = np.asarray(weights, np.float64) / np.sum(weights)
        a, c = 1 - float(np.sum(w * np.asarray(h))), noise_variance * float(np.sum(w**2 * np.asarray(q)))
        if not 0 < a <= 1:
            raise ValueError(f"Theorem 1 needs contractive clients: Σ w h = {1 - a:.3g} must be in [0, 1)")
        return cls(a, c)

    def iterate(self, first: float, server_rates: Sequence[float]) -> np.ndarray:
        """The bound on r after 0, 1, … rounds, computed round by round.

        Args:
            first: r₀ = ‖x₀ − x̃‖².
            server_rates: α of each round, between 0 and 1.

        Returns:
            One bound per round, and `first` before them.
        """
        rates = np.asarray(server_rates, np.float64)
        if (rates > 1).any() or (rates < 0).any():
            raise ValueError("Theorem 1 needs server learning rates between 0 and 1")
        bounds = [float(first)]
        for alpha in rates:
            bounds.append((1 - alpha * self.a) * bounds[-1] + alpha**2 * self.c)
        return np.asarray(bounds)


def sgd_contraction(learning_rate: float, strong_convexity: float, steps: ArrayLike) -> np.ndarray:
    """Contraction factor of k local SGD steps: h(k) = (1 − ημ)^{2k}, for η (μ + L) < 2.

    It holds if the noise of a gradient does not depend on the weights, or if the objective is quadratic; for k > 1 and
    other noise it can be false.

    Args:
        learning_rate: η, of the clients.
        strong_convexity: μ, the smallest curvature of any client.
        steps: k; one number or an array.

    Returns:
        h(k), in the shape of `steps`.

    >>> sgd_contraction(0.5, 1.0, [1, 2]).tolist()
    [0.25, 0.0625]
    """
    return (1 - learning_rate * strong_convexity) ** (2 * np.asarray(steps))


def sgd_variance(learning_rate: float, steps: ArrayLike) -> np.ndarray:
    """Noise factor of k local SGD steps: q(k) = η² k, to be multiplied by σ².

    Args:
        learning_rate: η, of the clients.
        steps: k; one number or an array.

    Returns:
        q(k), in the shape of `steps`.

    >>> sgd_variance(0.5, [1, 2]).tolist()
    [0.25, 0.5]
    """
    return learning_rate**2 * np.asarray(steps)


def theorem_1(recursion: Recursion, first: float, rounds: int) -> float:
    """Theorem 1: E‖x_{T+1} − x̃‖² ≤ 32 r₀ (1−a)^{T/2} / a + 36 c / (a² T), under `theorem_1_schedule`.

    Exponent and constants are those of the proof; the lemma does not give the (1−a)^T of the statement.

    Args:
        recursion: a and c.
        first: r₀ = ‖x₀ − x̃‖².
        rounds: T.

    Returns:
        The bound after T + 1 rounds.

    >>> theorem_1(Recursion(a=0.5, c=1.0), first=1.0, rounds=36)  # 64 · 0.5^18 + 36 · 4 / 36
    4.000244140625
    """
    a, c = recursion
    return 32 * first * (1 - a) ** (rounds / 2) / a + 36 * c / (a**2 * rounds)


def theorem_1_schedule(recursion: Recursion, rounds: int) -> np.ndarray:
    """The T + 1 server learning rates of `theorem_1` (Stich 2019, lemma 3): first 1, then 2 / (2 + a (t − T/2)).

    Args:
        recursion: a and c.
        rounds: T.

    Returns:
        One server learning rate per round.

    >>> theorem_1_schedule(Recursion(a=1.0, c=1.0), 4).tolist()
    [1.0, 1.0, 1.0, 0.6666666666666666, 0.5]
    """
    a, t = recursion.a, np.arange(rounds + 1)
    if rounds <= 1 / a:
        return np.ones(rounds + 1)
    half = -(-rounds // 2)
    return np.where(t < half, 1.0, 2 / (2 + a * np.maximum(t - half, 0)))


def gd_bound(
    learning_rate: float, strong_convexity: float, local_steps: int, first: float, rounds: ArrayLike
) -> np.ndarray:
    """Theorem 1 for full gradients and server learning rate 1: ‖x_T − x̃‖² ≤ (1 − ημ)^{2τT} r₀.

    Args:
        learning_rate: η, of the clients.
        strong_convexity: μ, the smallest curvature of any client.
        local_steps: τ, the same for all clients.
        first: r₀ = ‖x₀ − x̃‖².
        rounds: T; one number or an array.

    Returns:
        The bound, in the shape of `rounds`.

    >>> gd_bound(0.5, 1.0, local_steps=1, first=16.0, rounds=[0, 1, 2]).tolist()
    [16.0, 4.0, 1.0]
    """
    return sgd_contraction(learning_rate, strong_convexity, local_steps * np.asarray(rounds)) * first


def sgd_schedule(recursion: Recursion, rounds: int) -> np.ndarray:
    """The server learning rates of `sgd_bound`: α_t = 2 / (a (t + β)) = 2 / (2 + a t).

    β = 2/a is the smallest β for which every α is at most 1.

    Args:
        recursion: a and c.
        rounds: T.

    Returns:
        One server learning rate per round.

    >>> sgd_schedule(Recursion(a=1.0, c=1.0), 3).tolist()
    [1.0, 0.6666666666666666, 0.5]
    """
    return 2 / (2 + recursion.a * np.arange(rounds))


def sgd_bound(recursion: Recursion, first: float, rounds: ArrayLike) -> np.ndarray:
    """Theorem 1 for SGD under `sgd_schedule`: E‖x_T − x̃‖² ≤ ν / (T + β) with ν = max(4c/a², β r₀), β = 2/a.

    The paper has ν = 4c/a² alone (c = η²τσ²/M) and requires β ≤ 4c/(a² r₀). Together with α ≤ 1 no β satisfies that
    unless r₀ ≤ 2c/a already. The same induction proves the bound with the larger ν.

    Args:
        recursion: a and c.
        first: r₀ = ‖x₀ − x̃‖².
        rounds: T; one number or an array.

    Returns:
        The bound, in the shape of `rounds`.

    >>> sgd_bound(Recursion(a=1.0, c=1.0), first=2.0, rounds=[0, 2]).tolist()
    [2.0, 1.0]
    """
    a, c = recursion
    beta = 2 / a
    return max(4 * c / a**2, beta * first) / (np.asarray(rounds) + beta)


def sgd_noise_factor(learning_rate: float, strong_convexity: float, steps: ArrayLike) -> np.ndarray:
    """z(ημ) = 2ημτ / (1 − (1 − ημ)^{2τ}): what τ local SGD steps per round do to the noise of `sgd_bound`.

    The noise term 4c/a² with equal weights is z² σ² / (μ² M τ): at z = 1 that of M τ T independent gradients. z
    increases with ημ and with τ, from 1 at ημ = 0, and is at most 2ημτ / (1 − e^{−2ημτ}) because 1 − x ≤ e^{−x}. So
    ημτ ≤ 1 gives z < 2.314.

    Args:
        learning_rate: η, of the clients.
        strong_convexity: μ, the smallest curvature of any client.
        steps: τ; one number or an array.

    Returns:
        z, in the shape of `steps`.

    >>> sgd_noise_factor(0.5, 1.0, [1, 2]).tolist()  # 1 / (1 − 1/4), 2 / (1 − 1/16)
    [1.3333333333333333, 2.1333333333333333]
    """
    x, tau = learning_rate * strong_convexity, np.asarray(steps)
    if not 0 < x < 1:
        raise ValueError(f"SGD contracts if η (μ + L) < 2, so that 0 < ημ < 1, not {x:.3g}: use another learning rate")
    return 2 * x * tau / -np.expm1(2 * tau * math.log1p(-x))


def sgd_corollary(
    learning_rate: float,
    strong_convexity: float,
    local_steps: int,
    clients: int,
    noise_variance: float,
    first: float,
    rounds: ArrayLike,
) -> np.ndarray:
    """Theorem 1's corollary: for ημτ ≤ 1, E‖x_T − x̃‖² ≤ (B / (T + B))² r₀ + Z² σ² / (μ² M τ (T + 1)), B = Z / (ημτ).

    Z = 2 / (1 − e⁻²) bounds `sgd_noise_factor`: M clients with τ local steps average M τ gradients per round.
    Weights are equal, h is `sgd_contraction`, and server rates are those of `sgd_schedule`, α_t = 2 / (a (t + β)) with
    β = 2/a = z / (ημτ). The recursion times (t + β − 1)(t + β),

        (t + β − 1)(t + β) r_{t+1} ≤ (t + β − 2)(t + β − 1) r_t + 4c/a²,

    is summed over t; then 2 ≤ β ≤ B and 4c/a² = z² σ² / (μ² M τ) give the bound.

    The paper has 9σ² / (μ² M τ (T + β)) alone, which needs r₀ ≤ 2c/a (see `sgd_bound`).

    Args:
        learning_rate: η, of the clients.
        strong_convexity: μ, the smallest curvature of any client.
        local_steps: τ, the same for all clients.
        clients: M.
        noise_variance: σ², the variance of a stochastic gradient, summed over coordinates.
        first: r₀ = ‖x₀ − x̃‖².
        rounds: T; one number or an array.

    Returns:
        The bound, in the shape of `rounds`.

    >>> one, four = (sgd_corollary(0.1, 1.0, tau, 8, noise_variance=1.0, first=0.0, rounds=9) for tau in (1, 4))
    >>> round(float(one / four), 12)  # four local steps: a quarter of the noise
    4.0
    """
    progress = learning_rate * strong_convexity * local_steps
    if progress > 1 + 1e-12:
        raise ValueError(f"Theorem 1's corollary needs η μ τ ≤ 1, not {progress:.3g}: use a smaller learning rate")
    t, largest_beta = np.asarray(rounds), MAX_NOISE_FACTOR / progress
    noise = MAX_NOISE_FACTOR**2 * noise_variance / (strong_convexity**2 * clients * local_steps * (t + 1))
    return (largest_beta / (t + largest_beta)) ** 2 * first + noise
