"""The losses equal their definitions, and stay finite where the definitions do not."""

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.models import binary_cross_entropy, token_cross_entropy
from fedtrue.models.losses import log_sum_exp_in_one_pass


def problem(shape=(2, 5), vocabulary=11):
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(*shape, vocabulary))).astype(np.float32)
    return logits, rng.integers(0, vocabulary, shape), rng.normal(size=shape).astype(np.float32)


def by_definition(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]


def test_token_cross_entropy_and_its_gradient_equal_the_definition():
    logits, targets, weights = problem()
    np.testing.assert_allclose(token_cross_entropy(logits, targets), by_definition(logits, targets), rtol=1e-5)

    def gradient(loss):
        return jax.grad(lambda logits: (loss(logits, targets) * weights).sum())(logits)

    own, expected = gradient(token_cross_entropy), gradient(by_definition)
    np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)


def test_token_cross_entropy_under_vmap_equals_one_lane_at_a_time():
    logits, targets, _ = problem((4, 3, 2))
    gradient = jax.grad(lambda logits, targets: token_cross_entropy(logits, targets).sum())
    together = jax.vmap(gradient)(logits, targets)
    np.testing.assert_allclose(together, [gradient(a, b) for a, b in zip(logits, targets)], rtol=1e-6)


def test_token_cross_entropy_of_a_certain_prediction_is_zero_if_right_and_the_logit_gap_if_wrong():
    logits = jnp.array([0.0, 1000.0])
    assert token_cross_entropy(logits, jnp.array(1)) == 0
    assert token_cross_entropy(logits, jnp.array(0)) == 1000  # log(e⁰ + e¹⁰⁰⁰) − 0


def test_binary_cross_entropy_equals_the_definition():
    logits, _, _ = problem()
    labels = (logits > 1).astype(np.float32)
    sigmoid = 1 / (1 + np.exp(-logits.astype(np.float64)))
    expected = -labels * np.log(sigmoid) - (1 - labels) * np.log(1 - sigmoid)
    np.testing.assert_allclose(binary_cross_entropy(logits, labels), expected, rtol=1e-5, atol=1e-6)


def test_binary_cross_entropy_and_its_gradient_are_finite_for_any_logit():
    logits, labels = jnp.array([-1e4, 1e4, -1e4, 1e4]), jnp.array([0.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(binary_cross_entropy(logits, labels), [0, 0, 1e4, 1e4])
    gradient = jax.grad(lambda z: binary_cross_entropy(z, labels).sum())(logits)
    np.testing.assert_allclose(gradient, [0, 0, -1, 1])  # σ(z) − y


def test_log_sum_exp_in_one_pass_equals_the_two_pass_form_for_logits_of_any_size():
    logits = np.random.default_rng(0).normal(size=(3, 5, 37)).astype(np.float32) * [[[1], [10], [100], [1e4], [0]]]
    logits = jnp.asarray(logits, jnp.float32)
    np.testing.assert_allclose(log_sum_exp_in_one_pass(logits), jax.nn.logsumexp(logits, axis=-1), rtol=1e-6)
    lanes = jax.vmap(log_sum_exp_in_one_pass)(logits)
    np.testing.assert_array_equal(lanes, log_sum_exp_in_one_pass(logits))
