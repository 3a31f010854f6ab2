"""Convolution and pooling in forms that stay fast when every lane has weights of its own.

Images are (batch, height, width, channels), kernels (height, width, in, out).
"""

from collections.abc import Callable, Iterator
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from fedtrue.models.model import accumulator, matmul, product, unrounded
from fedtrue.names import look_up


def convolve(
    images: Array,
    kernel: Array,
    strides: int = 1,
    padding: str = "SAME",
    method: str | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Array:
    """y[b, r, s, o] = Σ_{i,j,c} images[b, r·strides + i, s·strides + j, c] · kernel[i, j, c, o], in float32."""
    return look_up("convolution method", METHODS, method or default_method())(images, kernel, strides, padding, dtype)


def convolve_by_patches(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """One matrix product: the shifted images side by side, (…, kh·kw·in), times the kernel (kh·kw·in, out)."""
    height, width, channels, filters = kernel.shape
    if (height, width, strides) == (1, 1, 1):
        return product(images, kernel[0, 0], dtype)
    patches = patches_of(images.astype(dtype), (height, width), strides, padding)
    return product(patches, kernel.reshape(height * width * channels, filters), dtype)


def convolve_by_cached_patches(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """The same a few images at a time, whose patches stay in a CPU's cache; the backward pass makes them again."""
    height, width = kernel.shape[:2]
    cut = partial(patches_of, window=(height, width), strides=strides, padding=padding)
    patches = jax.eval_shape(cut, jax.ShapeDtypeStruct(images.shape, dtype))
    few = _largest_divisor(len(images), at_most=CACHE_BYTES * len(images) // (patches.size * patches.dtype.itemsize))
    if few == len(images):
        return convolve_by_patches(images, kernel, strides, padding, dtype)
    convolve_few = partial(_convolve_remade, cut, dtype, kernel)
    parts = lax.map(convolve_few, images.reshape(-1, few, *images.shape[1:]))
    return parts.reshape(len(images), *parts.shape[2:])


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve_remade(cut: Callable[[Array], Array], dtype: DTypeLike, kernel: Array, images: Array) -> Array:
    """One matrix product over the patches P that `cut` makes of the images; the backward pass makes them again.

    With G the gradient of the result:  ∂kernel = (Gᵀ·P)ᵀ,  ∂images = cutᵀ(G·kernelᵀ).
    """
    flat = kernel.astype(dtype).reshape(-1, kernel.shape[-1])
    return matmul(cut(images.astype(dtype)), flat)


def _convolve_remade_forward(cut, dtype, kernel, images):
    return _convolve_remade(cut, dtype, kernel, images), (kernel, images)


def _convolve_remade_backward(cut, dtype, kept, gradient):
    kernel, images = kept
    flat = kernel.astype(dtype).reshape(-1, kernel.shape[-1])
    columns = gradient.astype(dtype).reshape(-1, kernel.shape[-1])
    patches, back = jax.vjp(cut, images.astype(dtype))
    # The barrier keeps XLA from turning the product around, which is slower: its rows would be the long way.
    by_kernel = lax.optimization_barrier(matmul(columns.T, patches.reshape(-1, len(flat)))).T
    (by_images,) = back(matmul(columns, flat.T).astype(dtype).reshape(patches.shape))
    return by_kernel.reshape(kernel.shape).astype(kernel.dtype), by_images.astype(images.dtype)


_convolve_remade.defvjp(_convolve_remade_forward, _convolve_remade_backward)


def patches_of(images: Array, window: tuple[int, int], strides: int, padding: str) -> Array:
    """(batch, rows, columns, places·channels): all that each window covers."""
    return jnp.concatenate(list(shifted_slices(images, window, strides, padding, fill=0)), axis=-1)


def _largest_divisor(number: int, at_most: int) -> int:
    return next((n for n in range(min(number, at_most), 1, -1) if number % n == 0), 1)


def convolve_by_xla(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """XLA's own convolution."""
    layout = ("NHWC", "HWIO", "NHWC")
    images, kernel = images.astype(dtype), kernel.astype(dtype)
    result = lax.conv_general_dilated(
        images, kernel, (strides, strides), padding, dimension_numbers=layout, precision=unrounded(dtype)
    )
    return result.astype(accumulator(dtype))


METHODS: dict[str, Callable[..., Array]] = {
    "patches": convolve_by_patches,
    "cached_patches": convolve_by_cached_patches,
    "xla": convolve_by_xla,
}

CACHE_BYTES = 1_500_000  # of patches at a time; 1, 2 or 4 images of `small_cnn`, 0.7 MB each, are about as fast


def default_method() -> str:
    """Patches everywhere, on a CPU a few images at a time.

    On a CPU XLA's convolution runs without its fast kernels inside a loop (jax issue 12868), and local steps are a
    loop: a step of `small_cnn` at batch 20, one on each of two cores, takes 28 ms by cached patches and 37 by patches;
    XLA's takes more than ten times that.

    Everywhere, vmap over lanes with different weights turns XLA's into a grouped convolution, which no library does
    well, while a matrix product only becomes a batched one: `resnet18` in 10 lanes on an H200 takes 4.4 ms a step by
    patches, 16 by XLA's.
    """
    return "cached_patches" if jax.default_backend() == "cpu" else "patches"


def max_pool(images: Array, window: int, strides: int | None = None, padding: str = "VALID") -> Array:
    """The largest value of each window × window tile; `strides` is the window unless given.

    A chain of maxima over shifted slices: its gradient is selects and pads, 12 times faster on CPU than that of XLA's
    windowed reduction and, unlike a scatter, the same every time. Where two values tie, each link of the chain gives
    both one half of the gradient.
    """
    return reduce(jnp.maximum, shifted_slices(images, (window, window), strides or window, padding, fill=-jnp.inf))


def average_pool(images: Array, window: int) -> Array:
    """The mean of each window × window tile; a rest that does not fill a tile is left out."""
    return reduce(jnp.add, shifted_slices(images, (window, window), window, "VALID", fill=0)) / window**2


def shifted_slices(images: Array, window: tuple[int, int], strides: int, padding: str, fill: float) -> Iterator[Array]:
    """For each place (i, j) of the window, row by row: the pixel every window has there."""
    pads = lax.padtype_to_pads(images.shape[1:3], window, (strides, strides), padding)
    if any(low or high for low, high in pads):
        images = jnp.pad(images, [(0, 0), *pads, (0, 0)], constant_values=fill)
    batch, height, width, channels = images.shape
    rows, columns = (height - window[0]) // strides + 1, (width - window[1]) // strides + 1
    cut = partial(lax.slice, images, strides=(1, strides, strides, 1))
    for i in range(window[0]):
        for j in range(window[1]):
            yield cut((0, i, j, 0), (batch, i + (rows - 1) * strides + 1, j + (columns - 1) * strides + 1, channels))
