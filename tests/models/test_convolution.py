"""Convolution as a matrix product equals XLA's; pooling takes the maximum of each window."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedtrue.models import convolve, max_pool


def images(batch=2, size=9, channels=3):
    return np.random.default_rng(0).normal(size=(batch, size, size + 1, channels)).astype(np.float32)


def kernel(size, channels=3, filters=4):
    return np.random.default_rng(1).normal(size=(size, size, channels, filters)).astype(np.float32)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "strides"), [(1, 1), (1, 2), (3, 1), (3, 2), (4, 1), (4, 3), (7, 2)])
def test_patches_equal_xla_in_value_and_gradients(size, strides, padding):
    def run(method, x, k):
        value, backward = jax.vjp(lambda x, k: convolve(x, k, strides, padding, method), x, k)
        return value, *backward(jnp.cos(jnp.arange(value.size)).reshape(value.shape))

    both = jax.jit(lambda x, k: (run("patches", x, k), run("xla", x, k)))(images(), kernel(size))
    for patches, xla in zip(*both):
        np.testing.assert_allclose(patches, xla, rtol=1e-4, atol=1e-4)


def test_patches_equal_xla_in_every_lane():
    kernels = np.stack([kernel(3), 2 * kernel(3)])
    x = np.stack([images(), images() + 1])
    patches, xla = (jax.vmap(lambda x, k, by=by: convolve(x, k, method=by))(x, kernels) for by in ("patches", "xla"))
    np.testing.assert_allclose(patches, xla, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["patches", "xla"])
def test_bfloat16_convolution_returns_float32_close_to_the_exact_result(method):
    half = convolve(images(), kernel(3), method=method, dtype=jnp.bfloat16)
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, convolve(images(), kernel(3)), atol=0.15)  # 27 products, each within 2⁻⁸


def test_the_error_for_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"did you mean 'patches'.*patches, .*xla"):
        convolve(images(), kernel(3), method="patch")


def test_max_pool_takes_the_largest_of_each_window_and_gives_its_gradient_there():
    x = jnp.arange(16.0).reshape(1, 4, 4, 1)  # row by row: a window's last value is its largest
    assert max_pool(x, 2).ravel().tolist() == [5, 7, 13, 15]
    assert max_pool(x, 3, strides=1).ravel().tolist() == [10, 11, 14, 15]
    gradient = jax.grad(lambda x: max_pool(x, 2).sum())(x)
    assert np.flatnonzero(gradient).tolist() == [5, 7, 13, 15]
