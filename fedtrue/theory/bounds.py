"""The bounds of Theorems 1 and 3, with the constants of the proofs.

Theorem 1's recursion (thm1_pre_final):  r' ≤ (1 − α a) r + α² c  for  r = E‖x − x̃‖²,  a = 1 − Σ w_i h_i,
c = σ² Σ w_i² q_i  and server learning rates α ≤ 1. The other bounds solve this recursion for a schedule of α.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.client_update import ClientState
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, local_path
from fedtrue.types import Array, Params, PyTree


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


class Rates(NamedTuple):
    """Theorem 3's learning rates. Our trace does not contain η, so the paper's server rate ητ is τ here."""

    client: float
    server: float


def theorem_3_rates(
    gap: float, smoothness: float, spread: float, largest_step: float, local_steps: int, rounds: int
) -> Rates:
    """Theorem 3's client learning rate η = min(1/(τL), (D / (L² Λ G²))^{1/3} / (τ T^{1/3})), and its server's.

    Args:
        gap: D = F(x₀) − inf F.
        smoothness: L, of every client's objective.
        spread: Λ, see `measured_constants`.
        largest_step: G, see `measured_constants`.
        local_steps: τ, the same for all clients.
        rounds: T.

    Returns:
        `client` and `server` learning rate.

    >>> theorem_3_rates(gap=1.0, smoothness=2.0, spread=1.0, largest_step=1.0, local_steps=5, rounds=1)
    Rates(client=0.1, server=5.0)
    """
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
    """Theorem 3: the mean over t < T of ‖∇F(x_t)‖² is at most 2D/(ητT) + L² Λ G² η² τ², for any η ≤ 1/(τL).

    The bound holds for the minimum over t too. With `theorem_3_rates` it is at most 2DL/T + 3 (D² L² Λ G² / T²)^{1/3};
    the paper's last line drops the factors 2 and 3.

    Args:
        gap: D = F(x₀) − inf F.
        smoothness: L, of every client's objective.
        spread: Λ, see `measured_constants`.
        largest_step: G, see `measured_constants`.
        learning_rate: η, of the clients.
        local_steps: τ, the same for all clients.
        rounds: T.

    Returns:
        The bound.

    >>> theorem_3(gap=1.0, smoothness=2.0, spread=1.0, largest_step=1.0, learning_rate=0.1, local_steps=5, rounds=4)
    2.0
    """
    rate_times_steps = learning_rate * local_steps
    if rate_times_steps * smoothness > 1 + 1e-12:
        raise ValueError(
            f"Theorem 3 needs η τ L ≤ 1, not {rate_times_steps * smoothness:.3g}: use a smaller learning rate"
        )
    return 2 * gap / (rate_times_steps * rounds) + smoothness**2 * spread * largest_step**2 * rate_times_steps**2


class Constants(NamedTuple):
    """The constants in Theorem 3's assumptions, measured."""

    spread: float  # Λ = max τ ‖P_k / N‖: 1 when all steps have the same weight
    largest_step: float  # G = max ‖P_k g_k‖


def measured_constants(task: Task, optimizer: ClientOptimizer, points: Params, local_steps: int) -> Constants:
    """Λ and G, as maxima over the local steps of all clients from all `points`.

    Args:
        task: whose clients train.
        optimizer: a client optimizer without momentum.
        points: server weights, stacked along a first axis, e.g. those of a run.
        local_steps: τ, the same for all clients.

    Returns:
        `spread` Λ and `largest_step` G.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> measured_constants(task, ft.client.sgd(0.1), np.array([[0.0], [1.0]]), local_steps=3).spread
    1.0
    """
    if jax.tree.leaves(jax.eval_shape(lambda: optimizer.move.init(jnp.zeros(1)))):
        raise ValueError(f"{optimizer.name} has momentum: Theorem 3's constants are measured for optimizers without")
    with float64():
        path = local_path(task, optimizer, all_clients(task, None, local_steps), local_steps, with_trace=True)

        def shares_and_lengths(x: Params) -> tuple[Array, Array]:
            states = path(x)
            return _largest_share(states), _longest_step(states, x) / optimizer.learning_rate(0)

        points = jax.tree.map(jnp.asarray, points)
        shares, lengths = jax.jit(lambda points: jax.lax.map(shares_and_lengths, points))(points)
        return Constants(float(local_steps * jnp.max(shares)), float(jnp.max(lengths)))


def _largest_share(states: ClientState) -> Array:
    """max P_k / N over clients, steps and coordinates."""

    def share(sums: Array) -> Array:  # Σ P up to each step; axes (clients, steps, …)
        per_step = jnp.diff(sums, axis=1, prepend=0)
        return jnp.max(per_step / sums[:, -1:])

    return jnp.max(jnp.stack([share(sums) for sums in jax.tree.leaves(states.trace["total"])]))


def _longest_step(states: ClientState, x: Params) -> Array:
    """max ‖x_{k+1} − x_k‖ over clients and steps."""

    def steps(after: Array, start: Array) -> Array:
        return jnp.diff(after, axis=1, prepend=jnp.broadcast_to(start, after[:, :1].shape))

    moves: PyTree = jax.tree.map(steps, states.params, x)
    squares = sum(jnp.sum(move**2, axis=tuple(range(2, move.ndim))) for move in jax.tree.leaves(moves))
    return jnp.sqrt(jnp.max(jnp.asarray(squares)))
