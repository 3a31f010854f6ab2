"""A round at weights x, taken apart: the true gradient, and everything that bends it.

E[pseudo-gradient] = η D ∇F  +  weighting  +  bias  +  noise  +  drift  +  cohorts

η D ∇F      the truth at the method's own scale: D is the method fed with ones in place of all gradients
weighting   the run's client weights are not the objective's
bias        clients enter with weights W_i that differ: η Σ w_i (W_i − D) ∇F_i; without correction W_i = N_i
noise       a preconditioner meets the gradient it was made of: what batches do at x beyond their mean gradient
drift       clients move while they step; it vanishes with η
cohorts     a correction may be no linear function of the sums, and then the mean over cohorts is not everyone's
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.algorithm.correction import Correction
from fedtrue.diagnosis.clients import Sums

ROUNDING = 1e3  # times the precision, of what is added up: a smaller direction is rounding error


class Piece(NamedTuple):
    """One summand of the expected pseudo-gradient, as numbers."""

    norm: float  # its length, what sampling adds to it taken off
    along: float  # its component along η D ∇F, in units of that vector's length: −1 cancels the truth
    standard_error: float  # of the vector, over orders or cohorts


class Decomposition(NamedTuple):
    """A round at x in numbers."""

    gradient_norm: float  # ‖∇F(x)‖
    gradient_standard_error: float  # from looking at some clients only
    client_gradient_norm: float  # √(Σ w_i ‖∇F_i(x)‖²)
    pseudo_gradient_norm: float  # ‖E G‖, everyone taking part
    cosine: float | None  # of E G and ∇F; None where E G is 0 but for rounding
    truth: float  # ‖η D ∇F‖
    clients_scale: float  # √(Σ w_i ‖η D ∇F_i‖²): how large the truth would be if clients agreed
    pieces: dict[str, Piece]
    left: float  # of the truth, in the expected pseudo-gradient: 1 + Σ along
    batch_scatter: float  # √E‖G − E G‖² over batch orders, for a cohort (everyone's, times √(clients/cohort))
    cohort_scatter: float  # the same over cohorts, batches fixed
    clients: int
    dropped: int


def decompose(sums: Sums, correction: Correction, cohort: int, federation: int, all_cohorts: bool) -> Decomposition:
    """From the sums over the clients looked at, of a `federation` of so many; a cohort of everyone is all of them."""
    w, omega = sums.objective, sums.weight
    gradient, method_gradient = sums.gradient / w, sums.method_gradient / omega
    received = lambda sent: np.asarray(jax.vmap(lambda s: receive(correction, s, omega))(sent))
    scales = received(sums.ones)
    scale = _mean(scales)
    truth = scale * gradient
    constant, frozen, moved = received(sums.constant), received(sums.frozen), received(sums.moved)
    of_cohorts, residuals = _cohort_residuals(sums, correction, min(cohort, int(sums.clients + sums.dropped)))
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


def receive(correction: Correction, sent: Any, weight: Any) -> Any:
    """The pseudo-gradient that the server makes of Σ w sent and Σ w."""
    return correction.receive(jax.tree.map(lambda leaf: leaf / jnp.where(weight == 0, 1, weight), sent))


def _cohort_residuals(sums: Sums, correction: Correction, cohort: int) -> tuple[np.ndarray, np.ndarray]:
    """G_S of every cohort, and G_S − G − G'(S), whose last term has mean 0: the same mean, less scatter.

    G'(S) is the pseudo-gradient's derivative at everyone's sums, in the direction of the cohort's.
    """
    pseudo_gradient = lambda sent, weight: receive(correction, sent, weight)
    first_order = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), sums.moved)
    everyone, derivative = jax.linearize(pseudo_gradient, first_order, jnp.asarray(sums.weight))
    of_cohorts = jax.vmap(pseudo_gradient)(sums.cohorts, sums.cohort_weights)
    per_draw = jax.tree.map(lambda leaf: leaf / cohort, (sums.cohorts, sums.cohort_weights))
    return np.asarray(of_cohorts), np.asarray(of_cohorts - everyone - jax.vmap(derivative)(*per_draw))


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
    """√ of the summed variances, from so many samples; 0 from one."""
    if len(samples) == 1:
        return 0.0
    return math.sqrt(((samples - _mean(samples)) ** 2).sum() / (len(samples) - 1))


def _piece(samples: Any, truth: Any, exact: bool = False) -> Piece:
    """The mean of `samples`; their scatter lengthens a mean, so ‖mean‖² − SE² estimates the true length squared."""
    mean, squared = _mean(samples), float(np.vdot(truth, truth))
    error = 0.0 if exact else _spread(samples) / math.sqrt(len(samples))
    length = math.sqrt(max(_norm(mean) ** 2 - error**2, 0.0))
    return Piece(length, float(np.vdot(mean, truth)) / squared if squared else 0.0, error)


def _sampling_error(sums: Sums, gradient: Any, federation: int) -> float:
    """Of ∇F, when M of C clients were looked at: √((1 − M/C) M/(M−1) Σ w_i² ‖∇F_i − ∇F‖²) / Σ w_i."""
    seen = float(sums.clients)
    if seen < 2:
        return 0.0 if federation == seen else math.inf
    w2, w2_gradient, w2_squared = sums.scatter
    scatter = float(w2_squared - 2 * np.vdot(w2_gradient, gradient) + w2 * np.vdot(gradient, gradient))
    return math.sqrt(max((1 - seen / federation) * seen / (seen - 1) * scatter, 0.0)) / float(sums.objective)
