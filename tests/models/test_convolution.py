"""Convolution as a matrix product equals XLA's; pooling by slices equals XLA's windowed reduction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedtrue.models import convolution, convolve, max_pool

PATCHES = ["patches", "cached_patches"]


def images(batch=2, size=9, channels=3):
    return np.random.default_rng(0).normal(size=(batch, size, size + 1, channels)).astype(np.float32)


@pytest.fixture
def image_by_image(monkeypatch):
    """A cache with space for the patches of one image only."""
    monkeypatch.setattr(convolution, "CACHE_BYTES", 1)


def kernel(size, channels=3, filters=4):
    return np.random.default_rng(1).normal(size=(size, size, channels, filters)).astype(np.float32)


@pytest.mark.parametrize("method", PATCHES)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "strides"), [(1, 1), (1, 2), (3, 1), (3, 2), (4, 1), (4, 3), (7, 2)])
@pytest.mark.usefixtures("image_by_image")
def test_patches_equal_xla_in_value_and_gradients(size, strides, padding, method):
    def run(method, x, k):
        value, backward = jax.vjp(lambda x, k: convolve(x, k, strides, padding, method), x, k)
        return value, *backward(jnp.cos(jnp.arange(value.size)).reshape(value.shape))

    both = jax.jit(lambda x, k: (run(method, x, k), run("xla", x, k)))(images(), kernel(size))
    for patches, xla in zip(*both):
        np.testing.assert_allclose(patches, xla, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("image_by_image")
@pytest.mark.parametrize("method", PATCHES)
def test_patches_equal_xla_in_every_lane(method):
    kernels = np.stack([kernel(3), 2 * kernel(3)])
    x = np.stack([images(), images() + 1])
    patches, xla = (jax.vmap(lambda x, k, by=by: convolve(x, k, method=by))(x, kernels) for by in (method, "xla"))
    np.testing.assert_allclose(patches, xla, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("cached_images", "at_once"), [(0, 1), (1, 1), (4, 3), (5, 3), (6, 6), (99, 6)])
def test_images_at_once_is_the_largest_divisor_of_the_batch_that_fits_the_cache(cached_images, at_once, monkeypatch):
    one_image = 7 * 8 * 27 * 4  # bytes: 3×3 windows of 9×10 pixels, 3 channels
    monkeypatch.setattr(convolution, "CACHE_BYTES", cached_images * one_image)
    program = jax.make_jaxpr(lambda x, k: convolve(x, k, padding="VALID", method="cached_patches"))(
        images(batch=6), kernel(3)
    )
    assert f"f32[{at_once},7,8,27]" in str(program)


@pytest.mark.parametrize("method", [*PATCHES, "xla"])
def test_bfloat16_convolution_returns_float32_close_to_the_exact_result(method):
    half = convolve(images(), kernel(3), method=method, dtype=jnp.bfloat16)
    assert half.dtype == jnp.float32
    np.testing.assert_allclose(half, convolve(images(), kernel(3)), atol=0.15)  # 27 products, each within 2⁻⁸


def test_the_error_for_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"did you mean 'patches'.*patches, .*xla"):
        convolve(images(), kernel(3), method="patch")


@pytest.mark.parametrize(
    ("window", "strides", "padding"), [(2, None, "VALID"), (3, 2, "SAME"), (3, 1, "VALID"), (4, None, "VALID")]
)
def test_max_pool_and_its_gradient_equal_the_windowed_reduction(window, strides, padding):
    step = strides or window

    def reduction(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, step, step, 1), padding)

    def gradient(pool):
        return jax.jit(jax.grad(lambda x: (pool(x) ** 3).sum()))(images())

    np.testing.assert_array_equal(max_pool(images(), window, strides, padding), reduction(images()))
    own = gradient(lambda x: max_pool(x, window, strides, padding))
    np.testing.assert_allclose(own, gradient(reduction), rtol=1e-5, atol=1e-5)


def test_tied_maxima_share_one_unit_of_gradient():
    gradient = jax.grad(lambda x: max_pool(x, 2).sum())(jnp.zeros((1, 2, 2, 1)))
    assert float(gradient.sum()) == 1
    assert (gradient > 0).all()
