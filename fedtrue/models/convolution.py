"""Convolution and pooling in forms that stay fast under vmap, when every lane has its own weights.

Images are (batch, height, width, channels), kernels (height, width, in, out).
"""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from fedtrue.models.model import accumulation_dtype, full_precision, product
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


def extract_patches(images: Array, window: tuple[int, int], strides: int, padding: str) -> Array:
    """(batch, rows, columns, kh·kw·channels): the pixels in the window at each position."""
    return jnp.concatenate(list(shifted_slices(images, window, strides, padding, fill=0)), axis=-1)


def convolve_by_xla(images: Array, kernel: Array, strides: int, padding: str, dtype: DTypeLike) -> Array:
    """XLA's own convolution. A CPU has one precision; asking for the highest would exclude Winograd's form."""
    layout = ("NHWC", "HWIO", "NHWC")
    images, kernel = images.astype(dtype), kernel.astype(dtype)
    precision = None if jax.default_backend() == "cpu" else full_precision(dtype)
    result = lax.conv_general_dilated(
        images, kernel, (strides, strides), padding, dimension_numbers=layout, precision=precision
    )
    return result.astype(accumulation_dtype(dtype))


METHODS: dict[str, Callable[..., Array]] = {"patches": convolve_by_patches, "xla": convolve_by_xla}


def default_method() -> str:
    """ "xla" on a CPU, where `fedtrue.lowering` has rules for it, "patches" on other devices.

    On every device, vmap over lanes with different weights turns XLA's convolution into a grouped convolution, which is
    slow, but a matrix product into a batched product: `resnet18` in 10 lanes on an H200 takes 4.4 ms per step with
    patches, 16 ms with XLA's convolution.
    """
    return "xla" if jax.default_backend() == "cpu" else "patches"


def max_pool(images: Array, window: int, strides: int | None = None, padding: str = "VALID") -> Array:
    """The maximum of each window × window tile; `strides` defaults to the window.

    `fedtrue.lowering` has rules for it and its gradient, which goes to the first of equal values.
    """
    step = strides or window
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, window, window, 1), (1, step, step, 1), padding)


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
