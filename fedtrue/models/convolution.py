"""Convolution and pooling in forms that stay fast under vmap, when every lane has its own weights.

Images are (batch, height, width, channels), kernels (height, width, in, out).
"""

from collections.abc import Callable, Iterator
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from fedtrue.models.model import accumulation_dtype, full_precision, matmul, product
from fedtrue.names import look_up


def convolve(
    images: Array,
    kernel: Array,
    strides: int = 1,
    padding: str = "SAME",
    method: str | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Array:
    """y[b, r, s, o] = Σ_{i,j,c} images[b, r·strides + i, s·strides + j, c] · kernel[i, j, c, o], in float32.

    `method` is a key of METHODS; by default `default_method()`. All methods give the same result up to rounding.
    """
    return look_up("convolution method", METHODS, method or default_method())(images, kernel, strides, padding, dtype)


def convolve_by_patches(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """One matrix product: the patches (…, kh·kw·in) times the kernel (kh·kw·in, out)."""
    height, width, channels, filters = kernel.shape
    if (height, width, strides) == (1, 1, 1):
        return product(images, kernel[0, 0], dtype)
    patches = extract_patches(images.astype(dtype), (height, width), strides, padding)
    return product(patches, kernel.reshape(height * width * channels, filters), dtype)


def convolve_by_cached_patches(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """The same for a few images at a time, whose patches fit a CPU's cache; the backward pass recomputes them."""
    height, width = kernel.shape[:2]
    extract = partial(extract_patches, window=(height, width), strides=strides, padding=padding)
    patches = jax.eval_shape(extract, jax.ShapeDtypeStruct(images.shape, dtype))
    images_at_once = _largest_divisor(
        len(images), at_most=CACHE_BYTES * len(images) // (patches.size * patches.dtype.itemsize)
    )
    if images_at_once == len(images):
        return convolve_by_patches(images, kernel, strides, padding, dtype)
    convolve_part = partial(_convolve_recomputed, extract, dtype, kernel)
    parts = lax.map(convolve_part, images.reshape(-1, images_at_once, *images.shape[1:]))
    return parts.reshape(len(images), *parts.shape[2:])


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve_recomputed(extract: Callable[[Array], Array], dtype: DTypeLike, kernel: Array, images: Array) -> Array:
    """One matrix product over the patches P = extract(images); the backward pass recomputes them.

    With G the gradient of the result:  ∂kernel = (Gᵀ·P)ᵀ,  ∂images = cutᵀ(G·kernelᵀ).
    """
    flat = kernel.astype(dtype).reshape(-1, kernel.shape[-1])
    return matmul(extract(images.astype(dtype)), flat)


def _convolve_recomputed_forward(extract, dtype, kernel, images):
    return _convolve_recomputed(extract, dtype, kernel, images), (kernel, images)


def _convolve_recomputed_backward(extract, dtype, residuals, gradient):
    kernel, images = residuals
    flat = kernel.astype(dtype).reshape(-1, kernel.shape[-1])
    columns = gradient.astype(dtype).reshape(-1, kernel.shape[-1])
    patches, images_vjp = jax.vjp(extract, images.astype(dtype))
    # The barrier keeps XLA from transposing the product, which is slower.
    kernel_gradient = lax.optimization_barrier(matmul(columns.T, patches.reshape(-1, len(flat)))).T
    (images_gradient,) = images_vjp(matmul(columns, flat.T).astype(dtype).reshape(patches.shape))
    return kernel_gradient.reshape(kernel.shape).astype(kernel.dtype), images_gradient.astype(images.dtype)


_convolve_recomputed.defvjp(_convolve_recomputed_forward, _convolve_recomputed_backward)


def extract_patches(images: Array, window: tuple[int, int], strides: int, padding: str) -> Array:
    """(batch, rows, columns, kh·kw·channels): the pixels in the window at each position."""
    return jnp.concatenate(list(shifted_slices(images, window, strides, padding, fill=0)), axis=-1)


def _largest_divisor(number: int, at_most: int) -> int:
    return next((n for n in range(min(number, at_most), 1, -1) if number % n == 0), 1)


def convolve_by_xla(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """XLA's own convolution."""
    layout = ("NHWC", "HWIO", "NHWC")
    images, kernel = images.astype(dtype), kernel.astype(dtype)
    result = lax.conv_general_dilated(
        images, kernel, (strides, strides), padding, dimension_numbers=layout, precision=full_precision(dtype)
    )
    return result.astype(accumulation_dtype(dtype))


METHODS: dict[str, Callable[..., Array]] = {
    "patches": convolve_by_patches,
    "cached_patches": convolve_by_cached_patches,
    "xla": convolve_by_xla,
}

CACHE_BYTES = 1_500_000  # of patches at a time; 1, 2 or 4 images of `small_cnn` (0.7 MB each) are about equally fast


def default_method() -> str:
    """ "cached_patches" on a CPU, "patches" on other devices.

    On a CPU, XLA's convolution does not use its fast kernels inside a loop (jax issue 12868), and local steps are a
    loop: with batch 20 and one step on each of two cores, a step of `small_cnn` takes 28 ms with cached patches, 37 ms
    with patches, and more than ten times as long with XLA's convolution.

    On every device, vmap over lanes with different weights turns XLA's convolution into a grouped convolution, which is
    slow, but a matrix product into a batched product: `resnet18` in 10 lanes on an H200 takes 4.4 ms per step with
    patches, 16 ms with XLA's convolution.
    """
    return "cached_patches" if jax.default_backend() == "cpu" else "patches"


def max_pool(images: Array, window: int, strides: int | None = None, padding: str = "VALID") -> Array:
    """The maximum of each window × window tile; `strides` defaults to the window.

    Computed as a chain of `maximum` over shifted slices. Its gradient consists of selects and pads: on a CPU 12 times
    faster than that of XLA's windowed reduction and, unlike a scatter, deterministic. If two values tie, each `maximum`
    gives both one half of the gradient.
    """
    return reduce(jnp.maximum, shifted_slices(images, (window, window), strides or window, padding, fill=-jnp.inf))


def shifted_slices(images: Array, window: tuple[int, int], strides: int, padding: str, fill: float) -> Iterator[Array]:
    """For each offset (i, j) in the window, row by row: the pixels at that offset of all windows."""
    pads = lax.padtype_to_pads(images.shape[1:3], window, (strides, strides), padding)
    if any(low or high for low, high in pads):
        images = jnp.pad(images, [(0, 0), *pads, (0, 0)], constant_values=fill)
    batch, height, width, channels = images.shape
    rows, columns = (height - window[0]) // strides + 1, (width - window[1]) // strides + 1
    extract = partial(lax.slice, images, strides=(1, strides, strides, 1))
    for i in range(window[0]):
        for j in range(window[1]):
            yield extract(
                (0, i, j, 0), (batch, i + (rows - 1) * strides + 1, j + (columns - 1) * strides + 1, channels)
            )
