"""Client optimizers with a matrix per weight matrix: Muon and Shampoo.

    step = m P (right)  or  P m (left),    P on the smaller side of the weight matrix

A weight array of two or more axes is a matrix whose columns are its last axis (`linear.as_matrix`). Given the P_k the
move is linear in the gradients, so the exact trace is again the move fed with the identity: a matrix of the size of P.
Arrays of fewer axes (biases, scales) have a diagonal preconditioner.

SOAP is not here: it runs Adam in the eigenbasis of Shampoo's L and R, so its preconditioner is diagonal in a basis that
changes during the round. The sum of such maps is a full matrix of (m n)² entries, as of Shampoo on both sides.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.client_optimizer import EPSILON, ClientOptimizer
from fedtrue.algorithm.move import Move, bias_corrected_move, float_type, plain_move
from fedtrue.algorithm.schedule import round_schedule
from fedtrue.algorithm.step_options import with_step_options
from fedtrue.names import look_up
from fedtrue.spec import named
from fedtrue.types import Array, LearningRate

SIDES = {"one": "P on the smaller side", "both": "a matrix on each side, for small weight matrices"}
MAX_ENTRIES_BOTH_SIDES = 512  # the trace of such a weight matrix then has 512² numbers, 1 MB


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def inverse_root(a: Array, epsilon: Any, k: int) -> Array:
    """(A + ε I)^(−1/k) of a symmetric A ≥ 0; finite for A = 0 too, and eigenvalues that rounding makes negative are 0.

    The derivative is our own, since that of an eigendecomposition does not exist where two eigenvalues are equal.

    >>> inverse_root(jnp.array([[3.0, 0.0], [0.0, 0.0]]), 1.0, 2).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    roots, basis = _roots(a, epsilon, k)
    return _in_basis(basis, jnp.diag(1 / roots))


@inverse_root.defjvp
def _inverse_root_jvp(k: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """d f(A) = V (F ∘ Vᵀ dA V) Vᵀ with F_ij = (f(λ_i) − f(λ_j)) / (λ_i − λ_j).

    For λ = uᵏ and f = 1/u that is F_ij = −1 / (u_i u_j Σ_{a<k} u_i^a u_j^(k−1−a)), also where λ_i = λ_j.
    """
    a, epsilon = primals
    roots, basis = _roots(a, epsilon, k)
    u, w = roots[:, None], roots[None, :]
    divided_differences = -1 / (u * w * sum(u**power * w ** (k - 1 - power) for power in range(k)))
    change = tangents[0] + tangents[1] * jnp.eye(len(roots), dtype=roots.dtype)
    return (
        _in_basis(basis, jnp.diag(1 / roots)),
        _in_basis(basis, divided_differences * _in_basis(basis.T, change)),
    )


def _roots(a: Array, epsilon: Any, k: int) -> tuple[Array, Array]:
    """The k-th roots of the eigenvalues of A + ε I, and the eigenvectors."""
    eigenvalues, basis = jnp.linalg.eigh(a)
    return (jnp.maximum(eigenvalues, 0) + epsilon).astype(a.dtype) ** (1 / k), basis


def _in_basis(basis: Array, matrix: Array) -> Array:
    """V M Vᵀ."""
    return jnp.linalg.multi_dot([basis, matrix, basis.T], precision=jax.lax.Precision.HIGHEST)


def _is_matrix(leaf: Any) -> bool:
    return jnp.ndim(leaf) >= 2


def _matrix_optimizer(
    name: str,
    learning_rate: Any,
    first: Callable[[Any], Any],
    accumulate: Callable[[Any, Any], Any],
    preconditioner_of: Callable[[Any, Any], Any],
    move: Move,
    beta1: Any = 0.0,
    bounded: bool = True,
) -> ClientOptimizer:
    """P of every leaf from its own statistic: `first(w)` before the first step, then `accumulate(g, statistic)`."""

    def init(params: Any, client: Any) -> dict[str, Any]:
        return {"statistics": jax.tree.map(first, params), "count": jnp.zeros((), float_type(params))}

    def preconditioner(state: dict[str, Any], g: Any) -> Any:
        return jax.tree.map(preconditioner_of, g, state["statistics"])

    def precondition(g: Any, state: dict[str, Any]) -> tuple[Any, Any]:
        new_state = {"statistics": jax.tree.map(accumulate, g, state["statistics"]), "count": state["count"] + 1}
        return preconditioner(new_state, g), new_state

    rate = round_schedule(f"{name}: learning_rate", learning_rate)
    return ClientOptimizer(rate, init, precondition, preconditioner, move, beta1, True, bounded, diagonal=False)


@named("client")
@with_step_options
def muon(
    learning_rate: LearningRate,
    beta: float = 0.9,
    epsilon: float = 1e-6,
    vector_rate: float = 1.0,
    beta2: float = 0.999,
    vector_epsilon: float = EPSILON,
) -> ClientOptimizer:
    """m' = β m + (1−β) g,  P = (m'ᵀ m' + ε I)^(−1/2),  step = m' P: the momentum, orthogonalised.

    P stands on the smaller side: for a matrix with fewer rows than columns P = (m' m'ᵀ + ε I)^(−1/2) and step = P m'.
    All axes of a weight array but the last count as rows. Arrays with fewer than two axes step as Adam's, with β₁ = β.
    In the clients' state `sync` P comes from the mean of the clients' last momenta, while the step's own restarts.

    Args:
        epsilon: ε; singular values of m' well below √ε are not scaled up to 1.
        vector_rate: the rate of arrays with fewer than two axes, as a multiple of η.
        beta2: their β₂ of the squared gradients.
        vector_epsilon: their ε, added to the root.

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.muon(0.02, vector_rate=0.1), correction="joint")
    >>> method.spec["client"]["beta"]
    0.9
    """
    check_float("muon: beta", beta, high=1.0)
    check_float("muon: epsilon", epsilon, open_low=True)
    check_float("muon: vector_rate", vector_rate, open_low=True)
    check_float("muon: beta2", beta2, high=1.0)
    check_float("muon: vector_epsilon", vector_epsilon)

    def accumulate(g: Any, statistic: Any) -> Any:
        if _is_matrix(g):
            return beta * statistic + (1 - beta) * g
        return beta2 * statistic + (1 - beta2) * g**2

    def preconditioner_of(g: Any, statistic: Any) -> Any:
        if not _is_matrix(g):
            return vector_rate / (jnp.sqrt(statistic) + vector_epsilon)
        side, _ = linear.smaller_side(g)
        return linear.OneSided(inverse_root(linear.gram(statistic, side), epsilon, 2), side)

    not_matrices = lambda state: jax.tree.map(lambda statistic: not _is_matrix(statistic), state["statistics"])
    move = bias_corrected_move(beta, beta2, not_matrices)  # as Adam's, for vectors; Muon's momentum has none
    return _matrix_optimizer("muon", learning_rate, jnp.zeros_like, accumulate, preconditioner_of, move, beta, False)


@named("client")
@with_step_options
def shampoo(
    learning_rate: LearningRate, epsilon: float = EPSILON, initial_accumulator: float = 0.1, sides: str = "one"
) -> ClientOptimizer:
    """R' = R + gᵀ g,  P = (R' + ε I)^(−1/2),  step = g P: Adagrad with a matrix.

    P stands on the smaller side: for a matrix with fewer rows than columns L' = L + g gᵀ, P = (L' + ε I)^(−1/2) and
    step = P g. `sides="both"` is Shampoo as published, step = (L' + ε I)^(−1/4) g (R' + ε I)^(−1/4). The sum of its P_k
    is a matrix on all m n entries, so it is limited to weight matrices of at most 512 entries. All axes of a weight
    array but the last count as rows. Arrays with fewer than two axes step as Adagrad's.

    Args:
        epsilon: ε, added to the eigenvalues (to the root, for arrays with fewer than two axes).
        initial_accumulator: c; R and L start at c I in every round.
        sides: "one" or "both".

    Returns:
        A client optimizer for `ft.fedopt`.

    >>> import fedtrue as ft
    >>> ft.client.shampoo(0.1).spec["sides"]
    'one'
    """
    check_float("shampoo: epsilon", epsilon, open_low=True)
    check_float("shampoo: initial_accumulator", initial_accumulator)
    look_up("shampoo: sides", SIDES, sides)

    def sides_of(w: Any) -> list[tuple[str, int]]:
        if sides == "one":
            return [linear.smaller_side(w)]
        if w.size > MAX_ENTRIES_BOTH_SIDES:
            raise ValueError(
                f'shampoo: sides="both" has a trace of (m n)² entries per weight matrix and is limited to m n ≤ '
                f'{MAX_ENTRIES_BOTH_SIDES}; a weight of shape {w.shape} has {w.size}: use sides="one"'
            )
        rows, columns = linear.as_matrix(w).shape
        return [("left", rows), ("right", columns)]

    def first(w: Any) -> Any:
        if not _is_matrix(w):
            return jnp.full_like(w, initial_accumulator)
        dtype = jnp.promote_types(w.dtype, jnp.float32)
        return {side: (initial_accumulator * jnp.eye(size)).astype(dtype) for side, size in sides_of(w)}

    def accumulate(g: Any, statistic: Any) -> Any:
        if not _is_matrix(g):
            return statistic + g**2
        return {side: total + linear.gram(g, side) for side, total in statistic.items()}

    def preconditioner_of(g: Any, statistic: Any) -> Any:
        if not _is_matrix(g):
            return 1.0 / (jnp.sqrt(statistic) + epsilon)
        if sides == "both":  # (L X R) in the stored order of the entries is (L ⊗ R) x
            return linear.Dense(jnp.kron(*(inverse_root(statistic[side], epsilon, 4) for side in ("left", "right"))))
        ((side, total),) = statistic.items()
        return linear.OneSided(inverse_root(total, epsilon, 2), side)

    return _matrix_optimizer("shampoo", learning_rate, first, accumulate, preconditioner_of, plain_move())
