"""Losses per token and per label; the caller masks, sums and divides."""

import jax
import jax.numpy as jnp
from jax import Array, lax


@jax.custom_vjp
def token_cross_entropy(logits: Array, targets: Array) -> Array:
    """log Σ_v exp(logits_v) − logits_target: (…, vocabulary) float, (…) integers → (…).

    With G the gradient of the loss:  ∂logits = (softmax(logits) − onehot(targets)) · G.

    Neither the log-softmax nor a one-hot matrix is ever stored: the backward pass is one elementwise pass over the
    logits, with the one-hot written as a comparison (a scatter would be an extra pass, and slow on a GPU).
    """
    return _token_cross_entropy_forward(logits, targets)[0]


def _token_cross_entropy_forward(logits, targets):
    log_total = log_sum_exp(logits)
    target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return log_total - target_logits, (logits, targets, log_total)


def _token_cross_entropy_backward(kept, gradient):
    logits, targets, log_total = kept
    softmax = jnp.exp(logits - log_total[..., None])
    is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
    return jnp.where(is_target, softmax - 1, softmax) * gradient[..., None], None


token_cross_entropy.defvjp(_token_cross_entropy_forward, _token_cross_entropy_backward)


def log_sum_exp(logits: Array) -> Array:
    """log Σ_v exp(logits_v), over the last axis.

    Elsewhere than on a CPU in one pass, for there passes over the logits are what costs: 1.3 of 48.7 ms of a round of
    Stack Overflow words on an H200. XLA's CPU code for such a reduction is not vectorised.
    """
    return jax.nn.logsumexp(logits, axis=-1) if jax.default_backend() == "cpu" else log_sum_exp_in_one_pass(logits)


def log_sum_exp_in_one_pass(logits: Array) -> Array:
    """Pairs (m, s) stand for s·eᵐ, m the largest so far; the smaller of two is brought to the larger's m and added."""

    def add(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        (m_a, s_a), (m_b, s_b) = a, b
        shrink = jnp.exp(-jnp.abs(m_a - m_b))
        return jnp.maximum(m_a, m_b), jnp.where(m_a > m_b, s_a + shrink * s_b, s_b + shrink * s_a)

    nothing = (jnp.finfo(logits.dtype).min.astype(logits.dtype), jnp.zeros((), logits.dtype))
    largest, total = lax.reduce((logits, jnp.ones_like(logits)), nothing, add, (logits.ndim - 1,))
    return largest + jnp.log(total)


def binary_cross_entropy(logits: Array, labels: Array) -> Array:
    """−y·log σ(z) − (1−y)·log(1−σ(z)) = log(1 + eᶻ) − y·z, elementwise; `softplus` is stable for any z."""
    return jax.nn.softplus(logits) - labels * logits
