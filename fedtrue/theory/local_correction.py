"""Theorem 3: under the local correction the server follows an average of each client's gradients.

    Δ_i = η Σ_k W_k g_k,    N_i = Σ_k W_k,    N_i⁻¹ Δ_i = η Σ_k A_k g_k  with  A_k = N_i⁻¹ W_k,    Σ_k A_k = I

W_k is the weight of gradient k in the displacement after all τ steps: P_k without momentum, a sum over the P_j of the
steps j ≥ k with it. The A_k sum to the identity because the exact trace is Σ_k W_k. So the average differs from the
gradient at x only because the client has moved:

    ‖∇F_i(x) − Σ_k A_k g_k‖² ≤ Σ_k ‖A_k‖ ‖∇F_i(x) − ∇F_i(x_k)‖²     A_k symmetric, positive semi-definite
                             ≤ L² Λ/τ Σ_k ‖x − x_k‖²                 Λ = τ max ‖A_k‖
                             ≤ L² Λ G² η² τ²                         ‖x − x_k‖ ≤ η k G,  G the longest step
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.trace import Step, Trace, exact
from fedtrue.precision import float64
from fedtrue.tasks.task import Task
from fedtrue.theory.operator import all_clients, local_path
from fedtrue.types import Array, Params, PyTree


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

    It holds for client optimizers with and without momentum, under `correction="local"`, `trace="exact"`,
    `client_state="restart"` and server SGD, and for the minimum over t too. With `theorem_3_rates` it is at most
    2DL/T + 3 (D² L² Λ G² / T²)^{1/3}; the paper's last line drops the factors 2 and 3.

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

    spread: float  # Λ = max τ ‖N⁻¹ W_k‖: 1 when all gradients have the same weight
    largest_step: float  # G = max ‖move(g_k, P_k)‖, which is ‖P_k g_k‖ without momentum


def measured_constants(task: Task, optimizer: ClientOptimizer, points: Params, local_steps: int) -> Constants:
    """Λ and G, as maxima over the local steps of all clients from all `points`.

    Momentum SGD has Λ = τ (1−β^τ) / (τ − β (1−β^τ)/(1−β)) < 2. In general 1 ≤ Λ ≤ τ if no weight W_k is negative. A
    move with negative weights, or with matrices that do not commute (`muon`, `shampoo`), needs Λ² in place of Λ in
    `theorem_3`; no optimizer of `ft.client` has negative weights.

    Args:
        task: whose clients train.
        optimizer: a client optimizer without weight decay.
        points: server weights, stacked along a first axis, e.g. those of a run.
        local_steps: τ, the same for all clients.

    Returns:
        `spread` Λ and `largest_step` G.

    >>> import numpy as np, fedtrue as ft
    >>> task = ft.tasks.quadratic(hessians=[[1.0], [1.0]], minima=[[0.0], [4.0]])
    >>> points = np.array([[0.0], [1.0]])
    >>> measured_constants(task, ft.client.sgd(0.1), points, local_steps=3).spread
    1.0
    >>> spread = measured_constants(task, ft.client.momentum(0.1, beta=0.5), points, local_steps=2).spread
    >>> round(spread, 12)  # W_0 : W_1 = 1 + β : 1, so Λ = 2 · 1.5 / 2.5
    1.2
    """
    if optimizer.options.weight_decay is not None:
        raise ValueError("Theorem 3's steps consist of gradients alone: use a client optimizer without weight decay")
    with float64():
        trace = gradient_weights(local_steps)
        path = local_path(task, optimizer, all_clients(task, None, local_steps), local_steps, trace)

        def shares_and_lengths(x: Params) -> tuple[Array, Array]:
            last, params = path(x)
            shares = jax.vmap(_largest_share)(trace.total(last.trace))
            return jnp.max(shares), _longest_step(params, x) / optimizer.learning_rate(0)

        points = jax.tree.map(jnp.asarray, points)
        shares, lengths = jax.jit(lambda points: jax.lax.map(shares_and_lengths, points))(points)
        return Constants(float(local_steps * jnp.max(shares)), float(jnp.max(lengths)))


def gradient_weights(steps: int) -> Trace:
    """W_k, stacked over the gradients k: the move fed with a one in step k and zeros in all other steps.

    That is the exact trace of a client that clips all its gradients but the k-th to zero.
    """
    summed = exact()

    def init(optimizer: ClientOptimizer, params: Any, optimizer_state: Any, memory: Any) -> Any:
        no_steps = summed.init(optimizer, params, optimizer_state, memory)
        per_gradient = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape)), no_steps)
        return {"steps_taken": jnp.int32(0), "per_gradient": per_gradient}

    def update(optimizer: ClientOptimizer, step: Step, state: Any) -> Any:
        now = state["steps_taken"]
        clip = linear.identity_like(step.p) if step.by.clip is None else step.by.clip

        def weight_of(k: Array, weight: Any) -> Any:
            impulse = jax.tree.map(lambda c: jnp.where(k == now, c, 0), clip)
            return summed.update(optimizer, step._replace(by=step.by._replace(clip=impulse)), weight)

        per_gradient = jax.vmap(weight_of)(jnp.arange(steps), state["per_gradient"])
        return {"steps_taken": now + 1, "per_gradient": per_gradient}

    return Trace(summed.init_memory, init, update, lambda state: state["per_gradient"]["total"], keep=lambda state: ())


def _largest_share(weights: PyTree) -> Array:
    """max ‖N⁻¹ W_k‖ over the gradients of one client, N = Σ_k W_k."""
    n = jax.tree.map(lambda w: jnp.sum(w, axis=0), weights)
    shares = jax.vmap(linear.apply, (None, 0))(linear.inverse(n), weights)
    sizes = [
        jnp.linalg.norm(share.matrix, ord=2, axis=(-2, -1)) if linear.is_matrix_map(share) else jnp.abs(share)
        for share in jax.tree.leaves(shares, is_leaf=linear.is_matrix_map)
    ]
    return jnp.max(jnp.stack([jnp.max(size) for size in sizes]))


def _longest_step(params: Params, x: Params) -> Array:
    """max ‖x_{k+1} − x_k‖ over clients and steps; `params` are the weights after each step."""

    def steps(after: Array, start: Array) -> Array:
        return jnp.diff(after, axis=1, prepend=jnp.broadcast_to(start, after[:, :1].shape))

    moves: PyTree = jax.tree.map(steps, params, x)
    squares = sum(jnp.sum(move**2, axis=tuple(range(2, move.ndim))) for move in jax.tree.leaves(moves))
    return jnp.sqrt(jnp.max(jnp.asarray(squares)))
