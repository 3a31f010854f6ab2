"""Decomposes a round at weights x into the true gradient and everything that deflects it.

E[pseudo-gradient] = η D ∇F  +  weighting  +  bias  +  noise  +  drift  +  cohorts

η D ∇F      the true gradient at the method's scale: D is the method's result if every gradient is 1
weighting   the run's client weights differ from those of the objective
bias        clients enter with different weights W_i: η Σ w_i (W_i − D) ∇F_i; without correction W_i = N_i
noise       a preconditioner depends on the batch gradient that it multiplies: what batches at x add to their mean
drift       clients move away from x during their local steps; it vanishes with η
cohorts     a correction need not be linear in the sums, and then the mean over cohorts differs from full participation
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.correction import Correction
from fedtrue.diagnosis.clients import Sums
from fedtrue.types import Array, PyTree

ROUNDING = 1e3  # times machine epsilon, relative to the summands: anything smaller is rounding error


class Piece(NamedTuple):
    """One summand of the expected pseudo-gradient, as numbers."""

    norm: float  # its length, corrected for the part that sampling adds
    along: float  # its component along η D ∇F, as a share of its length: −1 cancels it
    standard_error: float  # of the vector, over batch orders or cohorts


class Decomposition(NamedTuple):
    """The numbers of a round at x."""

    gradient_norm: float  # ‖∇F(x)‖
    gradient_standard_error: float  # from sampling clients
    client_gradient_norm: float  # √(Σ w_i ‖∇F_i(x)‖²)
    late_share: float  # of Σ w_i ‖∇F_i(x)‖²: coordinates that are absent from the client's first batch
    pseudo_gradient_norm: float  # ‖E G‖, with full participation
    cosine: float | None  # of E G and ∇F; None if E G is 0 up to rounding
    truth: float  # ‖η D ∇F‖
    clients_scale: float  # √(Σ w_i ‖η D ∇F_i‖²): `truth` if all clients had the same gradient
    pieces: dict[str, Piece]
    left: float  # share of the true gradient in the expected pseudo-gradient: 1 + Σ along
    batch_scatter: float  # √E‖G − E G‖² over batch orders, for a cohort (that of all clients, times √(clients/cohort))
    cohort_scatter: float  # the same over cohorts, with fixed batches
    clients: int
    dropped: int


def decompose(
    sums: Sums, correction: Correction, state: PyTree, cohort: int, federation: int, all_cohorts: bool
) -> Decomposition:
    """The numbers, from the sums over the sampled clients.

    Args:
        sums: over the sampled clients.
        correction: of the run's method.
        state: what the correction has kept of earlier rounds, with flat weights.
        cohort: clients per round.
        federation: clients in the federation.
        all_cohorts: whether the cohorts in `sums` are all possible ones.
    """
    w, omega = sums.objective, sums.weight
    gradient, method_gradient = sums.gradient / w, sums.method_gradient / omega
    received = lambda sent: np.asarray(jax.vmap(lambda s: receive(correction, state, s, omega))(sent))
    scales = received(sums.ones)
    scale = _mean(scales)
    truth = scale * gradient
    constant, frozen, moved = received(sums.constant), received(sums.frozen), received(sums.moved)
    of_cohorts, residuals = _cohort_residuals(sums, correction, state, min(cohort, int(sums.clients + sums.dropped)))
    pieces = {
        "weighting": _piece((scale * (method_gradient - gradient))[None], truth),
        "bias": _piece(constant - scales * method_gradient, truth),
        "noise": _piece(frozen - constant, truth),
        "drift": _piece(moved - frozen, truth),
        "cohorts": _piece(residuals, truth, exact=all_cohorts),
    }
    expected, clients_scale = _mean(moved), math.sqrt(float(np.vdot(scale**2, sums.squares) / w))
    return Decomposition(
        gradient_norm=_norm(gradient),
        gradient_standard_error=_sampling_error(sums, gradient, federation),
        client_gradient_norm=math.sqrt(float(np.sum(sums.squares) / w)),
        late_share=float(sums.late / squares) if (squares := np.sum(sums.squares)) else 0.0,
        pseudo_gradient_norm=_norm(expected),
        cosine=_cosine(expected, gradient, clients_scale),
        truth=_norm(truth),
        clients_scale=clients_scale,
        pieces=pieces,
        left=1 + sum(piece.along for piece in pieces.values()),
        batch_scatter=_spread(moved) * math.sqrt(float(sums.clients) / cohort),
        cohort_scatter=math.sqrt(((of_cohorts - moved[0]) ** 2).sum(axis=-1).mean()),
        clients=int(sums.clients),
        dropped=int(sums.dropped),
    )


def receive(correction: Correction, state: PyTree, sent: PyTree, weight: Array) -> Array:
    """The pseudo-gradient that the server computes from Σ w sent and Σ w."""
    return correction.receive(jax.tree.map(lambda leaf: leaf / jnp.where(weight == 0, 1, weight), sent), state)[0]


def _cohort_residuals(sums: Sums, correction: Correction, state: PyTree, cohort: int) -> tuple[np.ndarray, np.ndarray]:
    """G_S of every cohort S, and G_S − G − G'(S). The last term has mean 0 and reduces the variance.

    G'(S) is the derivative of the pseudo-gradient at the sums over all clients, in the direction of the cohort's sums.
    """
    pseudo_gradient = lambda sent, weight: receive(correction, state, sent, weight)
    first_order = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), sums.moved)
    of_all, derivative = jax.linearize(pseudo_gradient, first_order, jnp.asarray(sums.weight))
    of_cohorts = jax.vmap(pseudo_gradient)(sums.cohorts, sums.cohort_weights)
    per_draw = jax.tree.map(lambda leaf: leaf / cohort, (sums.cohorts, sums.cohort_weights))
    return np.asarray(of_cohorts), np.asarray(of_cohorts - of_all - jax.vmap(derivative)(*per_draw))


def _mean(samples: Any) -> Any:
    return samples.mean(axis=0)


def _norm(vector: Any) -> float:
    return float(np.linalg.norm(vector))


def _cosine(expected: Any, gradient: Any, clients_scale: float) -> float | None:
    length = _norm(expected) * _norm(gradient)
    if not length or _norm(expected) <= ROUNDING * float(np.finfo(expected.dtype).eps) * clients_scale:
        return None
    return float(np.vdot(expected, gradient)) / length


def _spread(samples: Any) -> float:
    """√ of the sum of the sample variances; 0 for a single sample."""
    if len(samples) == 1:
        return 0.0
    return math.sqrt(((samples - _mean(samples)) ** 2).sum() / (len(samples) - 1))


def _piece(samples: Any, truth: Any, exact: bool = False) -> Piece:
    """The mean of `samples`. Scatter makes a mean longer, so ‖mean‖² − SE² estimates the true squared length."""
    mean, squared = _mean(samples), float(np.vdot(truth, truth))
    error = 0.0 if exact else _spread(samples) / math.sqrt(len(samples))
    length = math.sqrt(max(_norm(mean) ** 2 - error**2, 0.0))
    return Piece(length, float(np.vdot(mean, truth)) / squared if squared else 0.0, error)


def _sampling_error(sums: Sums, gradient: Any, federation: int) -> float:
    """Of ∇F, if M of C clients were sampled: √((1 − M/C) M/(M−1) Σ w_i² ‖∇F_i − ∇F‖²) / Σ w_i."""
    sampled = float(sums.clients)
    if sampled < 2:
        return 0.0 if federation == sampled else math.inf
    w2, w2_gradient, w2_squared = sums.scatter
    scatter = float(w2_squared - 2 * np.vdot(w2_gradient, gradient) + w2 * np.vdot(gradient, gradient))
    return math.sqrt(max((1 - sampled / federation) * sampled / (sampled - 1) * scatter, 0.0)) / float(sums.objective)
