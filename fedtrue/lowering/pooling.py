"""Pooling as operations on shifted slices, instead of windowed reductions and scatters."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

MAX_WINDOW = 64  # places of a window; the program has an operation for each


class Shifted(NamedTuple):
    """What every window has at one place, and the padding that puts it back there."""

    values: Array
    edges: list[tuple[int, int, int]]


def is_small(avals: Sequence[Any], params: Mapping[str, Any]) -> bool:
    """A windowed reduction of floating-point numbers over few places, without dilation."""
    dilations = {*params.get("base_dilation", ()), *params.get("window_dilation", ())}
    floating = jnp.issubdtype(avals[0].dtype, jnp.floating)
    return floating and dilations <= {1} and 1 < math.prod(params["window_dimensions"]) <= MAX_WINDOW


def is_small_max(avals: Sequence[Any], params: Mapping[str, Any]) -> bool:
    """The gradient of such a maximum."""
    return params["select_prim"] is lax.ge_p and is_small(avals, params)


def max_by_slices(values: Array, *, window_dimensions: Any, window_strides: Any, padding: Any, **_: Any) -> Array:
    """The maximum over each window."""
    slices = _shifted(values, window_dimensions, window_strides, padding, fill=-jnp.inf)
    return reduce(jnp.maximum, (part.values for part in slices))


def sum_by_slices(values: Array, *, window_dimensions: Any, window_strides: Any, padding: Any, **_: Any) -> Array:
    """The sum over each window."""
    slices = _shifted(values, window_dimensions, window_strides, padding, fill=0)
    return reduce(jnp.add, (part.values for part in slices))


def scatter_by_slices(
    gradient: Array, values: Array, *, window_dimensions: Any, window_strides: Any, padding: Any, **_: Any
) -> Array:
    """The gradient of each window goes to the first of its largest values."""
    slices = list(_shifted(values, window_dimensions, window_strides, padding, fill=-jnp.inf))
    chosen = _first_largest([part.values for part in slices])
    padded = [size + low + high for size, (low, high) in zip(values.shape, padding)]
    if tuple(window_dimensions) == tuple(window_strides) and not any(
        size % step for size, step in zip(padded, window_strides)
    ):
        placed = _put_into_tiles(gradient, chosen, window_dimensions, padded)
    else:
        zero = jnp.zeros((), gradient.dtype)
        parts = (jnp.where(chosen == place, gradient, 0) for place in range(len(slices)))
        placed = reduce(jnp.add, (lax.pad(own, zero, part.edges) for own, part in zip(parts, slices)))
    return lax.slice(placed, [low for low, _ in padding], [size - high for size, (_, high) in zip(padded, padding)])


def _first_largest(parts: Sequence[Array]) -> Array:
    """For every window the number of the first part that is its largest."""
    largest, chosen = reduce(jnp.maximum, parts), jnp.full(parts[0].shape, len(parts) - 1, jnp.int32)
    for place in reversed(range(len(parts) - 1)):
        chosen = jnp.where(parts[place] == largest, place, chosen)
    return chosen


def _put_into_tiles(gradient: Array, chosen: Array, window: Any, shape: Sequence[int]) -> Array:
    """Windows that tile the array: the gradient of each at its chosen place, 0 elsewhere."""
    between = lambda array: array.reshape([size for count in array.shape for size in (count, 1)])
    places = np.arange(math.prod(window)).reshape([size for width in window for size in (1, width)])
    return jnp.where(between(chosen) == places, between(gradient), 0).reshape(shape)


def _shifted(values: Array, window: Any, strides: Any, padding: Any, fill: float) -> Iterator[Shifted]:
    """For each place in the window: what all windows have there."""
    padded = lax.pad(values, jnp.asarray(fill, values.dtype), [(low, high, 0) for low, high in padding])
    counts = [(size - width) // step + 1 for size, width, step in zip(padded.shape, window, strides)]
    for place in itertools.product(*map(range, window)):
        ends = [at + (count - 1) * step + 1 for at, count, step in zip(place, counts, strides)]
        edges = [(at, size - end, step - 1) for at, size, end, step in zip(place, padded.shape, ends, strides)]
        yield Shifted(lax.slice(padded, place, ends, strides), edges)
