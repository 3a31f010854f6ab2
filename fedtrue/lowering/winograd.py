"""Winograd's convolutions F(4×4, 3×3): 4 × 4 results from a 6 × 6 tile with 36 products instead of 144.

    Y = Aᵀ [ (G k Gᵀ) ⊙ (Bᵀ x B) ] A          x: tile of the images, k: 3 × 3 kernel, summed over input channels

(Lavin, Gray 2016). The three transforms are linear, so the gradients with respect to x and k are made of the same
three, transposed. Each is one matrix product over all tiles, with the Kronecker product of its matrix with itself.

Rounding errors are about ten times those of a direct sum.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

WINDOW, BLOCK, TILE = 3, 4, 6
_B = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
      [0, 4, 0, -5, 0, 1]]  # fmt: skip
_G = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
      [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]  # fmt: skip
_A = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
OF_TILES, OF_KERNELS, OF_RESULTS = (np.kron(m, m) for m in map(np.array, (_B, _G, _A)))
POINTS = TILE**2


class Tiling(NamedTuple):
    """How many tiles cover the results, along each axis of space."""

    rows: int
    columns: int

    @classmethod
    def of(cls, results: Sequence[int]) -> "Tiling":
        return cls(*(-(-size // BLOCK) for size in results))


def convolve(images: Array, kernel: Array) -> Array:
    """(n, h + 2, w + 2, in), (3, 3, in, out) → (n, h, w, out): every window of the images times the kernel."""
    n, height, width, _ = images.shape
    results = (height - 2, width - 2)
    by_point = _per_point(_tiles(images, Tiling.of(results)), _kernels(kernel), over=(2, 1))
    return _from_blocks(_transformed(OF_RESULTS, by_point), n, results)


def convolve_transposed(images: Array, kernel: Array) -> Array:
    """(n, h, w, in), (3, 3, in, out) → (n, h + 2, w + 2, out): the same for images with two zeros on every side.

    The transpose of `convolve` with the reversed kernel; `_blocks(images)` is shared with `kernel_gradient`.
    """
    n, height, width, _ = images.shape
    reversed_kernel = lax.rev(kernel, (0, 1)).transpose(0, 1, 3, 2)
    by_point = _per_point(_blocks(images), _kernels(reversed_kernel), over=(2, 2))
    tiles = _transformed(OF_TILES.T, by_point)
    shape = jax.ShapeDtypeStruct((n, height + 2, width + 2, kernel.shape[-1]), images.dtype)
    overlap_add = jax.linear_transpose(lambda images: _cut(images, Tiling.of((height, width))), shape)
    return overlap_add(tiles)[0]


def kernel_gradient(images: Array, gradient: Array) -> Array:
    """(n, h + 2, w + 2, in), (n, h, w, out) → (3, 3, in, out): Σ over n, h, w of image times gradient."""
    tiles = _tiles(images, Tiling.of(gradient.shape[1:3]))
    by_point = _per_point(tiles, _blocks(gradient), over=(1, 1))
    return _transformed(OF_KERNELS.T, by_point).reshape(WINDOW, WINDOW, *by_point.shape[1:])


def _transformed(matrix: np.ndarray, arrays: Array) -> Array:
    """The matrix times the first axis."""
    result = jnp.asarray(matrix, arrays.dtype) @ arrays.reshape(len(arrays), -1)
    return result.reshape(-1, *arrays.shape[1:])


def _per_point(left: Array, right: Array, over: tuple[int, int]) -> Array:
    """One matrix product for each of the 36 points, summed over these axes."""
    return lax.dot_general(left, right, (((over[0],), (over[1],)), ((0,), (0,))))


def _tiles(images: Array, tiling: Tiling) -> Array:
    """Bᵀ x B of every tile: (36, tiles, channels)."""
    return _transformed(OF_TILES, _cut(images, tiling))


def _kernels(kernel: Array) -> Array:
    """G k Gᵀ: (36, in, out)."""
    return _transformed(OF_KERNELS, kernel.reshape(WINDOW**2, *kernel.shape[2:]))


def _blocks(results: Array) -> Array:
    """A y Aᵀ of every block of results: (36, tiles, channels)."""
    n, height, width, channels = results.shape
    rows, columns = Tiling.of((height, width))
    padded = _padded(results, rows * BLOCK, columns * BLOCK)
    blocks = padded.reshape(n, rows, BLOCK, columns, BLOCK, channels).transpose(2, 4, 0, 1, 3, 5)
    return _transformed(OF_RESULTS.T, blocks.reshape(BLOCK**2, -1, channels))


def _from_blocks(blocks: Array, n: int, results: tuple[int, int]) -> Array:
    """(16, tiles, channels) → (n, height, width, channels)."""
    rows, columns = Tiling.of(results)
    whole = blocks.reshape(BLOCK, BLOCK, n, rows, columns, -1).transpose(2, 3, 0, 4, 1, 5)
    return whole.reshape(n, rows * BLOCK, columns * BLOCK, -1)[:, : results[0], : results[1]]


def _cut(images: Array, tiling: Tiling) -> Array:
    """(n, height, width, channels) → (36, tiles, channels): tiles of 6 × 6 pixels, 4 pixels apart."""
    rows, columns = tiling
    n, channels = images.shape[0], images.shape[3]
    padded = _padded(images, (rows + 1) * BLOCK, (columns + 1) * BLOCK)
    x = padded.reshape(n, rows + 1, BLOCK, columns + 1, BLOCK, channels)
    overlap = TILE - BLOCK  # a tile ends in the next block
    x = jnp.concatenate([x[:, :-1], x[:, 1:, :overlap]], axis=2)
    x = jnp.concatenate([x[:, :, :, :-1], x[:, :, :, 1:, :overlap]], axis=4)
    return x.transpose(2, 4, 0, 1, 3, 5).reshape(POINTS, n * rows * columns, channels)


def _padded(images: Array, height: int, width: int) -> Array:
    """With zeros below and to the right, or cut there."""
    edges = [(0, 0, 0), (0, height - images.shape[1], 0), (0, width - images.shape[2], 0), (0, 0, 0)]
    return lax.pad(images, jnp.zeros((), images.dtype), edges)


def relative_cost(images: int, results: Sequence[int], into: int, out: int) -> float:
    """Multiplications of `convolve`, with its transforms, over those of a direct sum."""
    tiles = images * math.prod(Tiling.of(results))
    transforms = POINTS * (tiles * POINTS * into + tiles * BLOCK**2 * out + WINDOW**2 * into * out)
    return (transforms + tiles * POINTS * into * out) / (images * math.prod(results) * WINDOW**2 * into * out)
