"""Convolutions in the forms that compilers run fast: canonical axes and single groups on CPUs, products on GPUs."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fedtrue.lowering import winograd

MAX_GROUPS = 16  # that are computed one by one; each is an operation of its own in the program
MAX_WINOGRAD_COST = 0.65  # multiplications, relative to those of a direct sum
MAX_SLICES = 64  # of which the patches of one convolution are made

Params = Mapping[str, Any]


def has_few_groups(avals: Sequence[Any], params: Params) -> bool:
    """Has several groups: what `vmap` makes of convolutions with weights per lane."""
    return 1 < _groups(params) <= MAX_GROUPS


def is_not_canonical(avals: Sequence[Any], params: Params) -> bool:
    """Has its axes in another order than the fast kernels of XLA's CPU backend."""
    spatial = len(params["window_strides"])
    return 1 <= spatial <= 3 and params["dimension_numbers"] != _canonical_numbers(spatial)


def canonical(images: Array, kernel: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    """The same convolution with its axes in the order batch, space, channels (kernels: space, in, out).

    XLA's CPU compiler has fast kernels for this order only. It has a pass that brings convolutions into it, but that
    pass visits the entry computation, so convolutions inside loops miss it.
    """
    images, kernel = _to_canonical(images, kernel, dimension_numbers)
    numbers = _canonical_numbers(images.ndim - 2)
    result = lax.conv_general_dilated_p.bind(images, kernel, dimension_numbers=numbers, **params)
    return _from_canonical(result, dimension_numbers)


def is_winograd(avals: Sequence[Any], params: Params) -> bool:
    """Is a 3 × 3 convolution with stride 1 in two dimensions, or its gradient, of a size for which Winograd's pays."""
    images, kernel = avals
    simple = all(set(params[name]) == {1} for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    if len(params["window_strides"]) != 2 or not simple or _groups(params) > 1 or params["precision"] is not None:
        return False
    if not images.dtype == kernel.dtype == jnp.float32 or params["preferred_element_type"] not in (None, jnp.float32):
        return False
    return _winograd(avals, params) is not None


def _winograd(avals: Sequence[Any], params: Params) -> Callable[[Array, Array, Any], Array] | None:
    """The cheapest form, a function of images and kernel in canonical order and the padding; None if none pays."""
    (images, kernel), numbers = (aval.shape for aval in avals), params["dimension_numbers"]
    n, into, *space = (images[axis] for axis in numbers.lhs_spec)
    out = kernel[numbers.rhs_spec[0]]
    window, positions = _window_and_positions(avals, params)
    costs: dict[Any, float] = {}
    if window == [winograd.WINDOW] * 2:
        costs[_winograd_forward] = winograd.relative_cost(n, positions, into, out)
        if all(0 <= edge <= 2 for edges in params["padding"] for edge in edges):
            # Of two that cost the same, this one is for gradients; in them axes of the kernel are exchanged.
            by_order = 0.99 if numbers.rhs_spec[0] < numbers.rhs_spec[1] else 1.01
            cost = winograd.relative_cost(n, space, out, into) * math.prod(space) / math.prod(positions)
            costs[_winograd_backward] = by_order * cost
    elif positions == [winograd.WINDOW] * 2:
        costs[_winograd_kernel_gradient] = winograd.relative_cost(into, window, n, out)
    cheapest = min(costs, key=lambda form: costs[form], default=None)
    return cheapest if cheapest and costs[cheapest] <= MAX_WINOGRAD_COST else None


def by_winograd(images: Array, kernel: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    """With fewer multiplications, see `winograd.py`."""
    form = _winograd([images, kernel], {**params, "dimension_numbers": dimension_numbers})
    assert form is not None
    result = form(*_to_canonical(images, kernel, dimension_numbers), params["padding"])
    return _from_canonical(result, dimension_numbers)


def _winograd_forward(images: Array, kernel: Array, padding: Any) -> Array:
    return winograd.convolve(_padded(images, (1, 2), padding, (1, 1)), kernel)


def _winograd_backward(images: Array, kernel: Array, padding: Any) -> Array:
    """What has fewer zeros on its sides than two is a part of the result with two."""
    crop = [(low - 2, high - 2) for low, high in padding]
    return _padded(winograd.convolve_transposed(images, kernel), (1, 2), crop, (1, 1))


def _winograd_kernel_gradient(images: Array, gradient: Array, padding: Any) -> Array:
    """Images (in, space, n), gradient (space, n, out): JAX's convolution for the gradient of a kernel."""
    images = _padded(images.transpose(3, 1, 2, 0), (1, 2), padding, (1, 1))
    return winograd.kernel_gradient(images, gradient.transpose(2, 0, 1, 3)).transpose(2, 0, 1, 3)


def by_group(images: Array, kernel: Array, **params: Any) -> Array:
    """One convolution per group."""
    numbers, groups = params["dimension_numbers"], _groups(params)
    axis = numbers.lhs_spec[1] if params["feature_group_count"] > 1 else numbers.lhs_spec[0]
    single = {**params, "feature_group_count": 1, "batch_group_count": 1}
    results = [
        lax.conv_general_dilated_p.bind(own_images, own_kernel, **single)
        for own_images, own_kernel in zip(
            jnp.split(images, groups, axis), jnp.split(kernel, groups, numbers.rhs_spec[0])
        )
    ]
    return jnp.concatenate(results, axis=numbers.out_spec[1])


def has_few_patches(avals: Sequence[Any], params: Params) -> bool:
    """Has several groups, and a small window or few positions: of a gradient's convolution the window may be large."""
    window, positions = _window_and_positions(avals, params)
    return _groups(params) > 1 and min(math.prod(window), math.prod(positions)) <= MAX_SLICES


def by_patches(images: Array, kernel: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    """One product per group of patches of the images and the kernel: a sum over the window and the input channels.

    Patches are put together from slices of the images: one per place in the window with all positions, or one per
    position with all places in the window, whichever are fewer. Axes stay in the order in which they are stored.
    """
    (batch, into, *space), (out, channels, *window) = dimension_numbers.lhs_spec, dimension_numbers.rhs_spec
    images = _groups_first(images, into if params["feature_group_count"] > 1 else batch, _groups(params))
    kernel = _groups_first(kernel, out, _groups(params))
    window_names, position_names = [f"w{i}" for i in range(len(space))], [f"p{i}" for i in range(len(space))]
    image_names = ["group", *_ordered({batch: "batch", into: "in", **dict(zip(space, position_names))})]
    kernel_names = ["group", *_ordered({out: "out", channels: "in", **dict(zip(window, window_names))})]
    space = [image_names.index(name) for name in position_names]
    images = _padded(images, space, params["padding"], params["lhs_dilation"])
    sizes, places = [images.shape[axis] for axis in space], [kernel.shape[kernel_names.index(w)] for w in window_names]
    in_window = Steps(places, params["rhs_dilation"])
    over_space = Steps(_positions(sizes, *in_window, params["window_strides"]), params["window_strides"])
    if math.prod(places) <= math.prod(over_space.counts):
        patches = _stacked_slices(images, space, in_window, over_space)
        kernel, kernel_names = _with_flat_window(kernel, kernel_names, window_names)
        positions = position_names
    else:
        patches = _stacked_slices(images, space, over_space, in_window)
        for axis, name in zip(space, window_names):
            image_names[axis] = name
        positions = ["stacked"]
    patch_names = [*image_names[:-1], "stacked", image_names[-1]]
    result = _product(patches, patch_names, kernel, kernel_names, ["batch", *positions, "group", "out"], params)
    return _from_canonical(result.reshape(result.shape[0], *over_space.counts, -1), dimension_numbers)


def _with_flat_window(kernel: Array, names: list[str], window_names: list[str]) -> tuple[Array, list[str]]:
    """The kernel with one axis for all places in the window, in the order in which slices are stacked."""
    kernel = kernel.transpose([names.index(name) for name in ["group", *window_names, "in", "out"]])
    return kernel.reshape(kernel.shape[0], -1, *kernel.shape[-2:]), ["group", "stacked", "in", "out"]


class Steps(NamedTuple):
    """So many, so far apart, along each axis of space."""

    counts: Sequence[int]
    strides: Sequence[int]


def _groups_first(array: Array, axis: int, groups: int) -> Array:
    """The axis holds all groups in turn: they become the first axis."""
    shape = (*array.shape[:axis], groups, array.shape[axis] // groups, *array.shape[axis + 1 :])
    return jnp.moveaxis(array.reshape(shape), axis, 0)


def _padded(images: Array, space: Sequence[int], padding: Any, dilation: Any) -> Array:
    edges = [(0, 0, 0)] * images.ndim
    for axis, (low, high), step in zip(space, padding, dilation):
        edges[axis] = low, high, step - 1
    return lax.pad(images, jnp.zeros((), images.dtype), edges)


def _stacked_slices(images: Array, space: Sequence[int], moving: Steps, inner: Steps) -> Array:
    """For every combination of moving steps the slice of inner steps from there, along the last axis but one."""
    slices = []
    for at in itertools.product(*map(range, moving.counts)):
        starts, ends, strides = [0] * images.ndim, list(images.shape), [1] * images.ndim
        for axis, place, step, count, stride in zip(space, at, moving.strides, *inner):
            starts[axis], strides[axis] = place * step, stride
            ends[axis] = place * step + (count - 1) * stride + 1
        slices.append(lax.slice(images, starts, ends, strides))
    return jnp.stack(slices, axis=images.ndim - 1)


def _ordered(names: Mapping[int, str]) -> list[str]:
    return [names[axis] for axis in sorted(names)]


def _product(left: Array, left_names: Any, right: Array, right_names: Any, names: Any, params: Params) -> Array:
    """einsum, with names for axes."""
    number = {name: at for at, name in enumerate(dict.fromkeys([*left_names, *right_names]))}
    axes = [[number[name] for name in group] for group in (left_names, right_names, names)]
    kind = {"precision": params["precision"], "preferred_element_type": params["preferred_element_type"]}
    return jnp.einsum(left, axes[0], right, axes[1], axes[2], **kind)


def _positions(
    space: Sequence[int], window: Sequence[int], dilation: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """How many windows fit, along each axis of padded images."""
    return [
        (size - (width - 1) * step - 1) // stride + 1
        for size, width, stride, step in zip(space, window, strides, dilation)
    ]


def _window_and_positions(avals: Sequence[Any], params: Params) -> tuple[list[int], list[int]]:
    images, kernel = (aval.shape for aval in avals)
    numbers = params["dimension_numbers"]
    window = [kernel[axis] for axis in numbers.rhs_spec[2:]]
    space = [
        (images[axis] - 1) * step + 1 + low + high
        for axis, step, (low, high) in zip(numbers.lhs_spec[2:], params["lhs_dilation"], params["padding"])
    ]
    return window, _positions(space, window, params["rhs_dilation"], params["window_strides"])


def _groups(params: Params) -> int:
    return max(params["feature_group_count"], params["batch_group_count"])


def _canonical_numbers(spatial: int) -> lax.ConvDimensionNumbers:
    space = tuple(range(1, spatial + 1))
    images = (0, spatial + 1, *space)
    return lax.ConvDimensionNumbers(images, (spatial + 1, spatial, *range(spatial)), images)


def _to_canonical(images: Array, kernel: Array, numbers: Any) -> tuple[Array, Array]:
    """Images (batch, space, channels) and kernel (space, in, out)."""
    batch, channels, *space = numbers.lhs_spec
    out, into, *window = numbers.rhs_spec
    return images.transpose([batch, *space, channels]), kernel.transpose([*window, into, out])


def _from_canonical(result: Array, numbers: Any) -> Array:
    """A result (batch, space, channels) in the order that `numbers` asks for."""
    rank = result.ndim
    order = [0] * rank
    for axis, place in zip([0, rank - 1, *range(1, rank - 1)], numbers.out_spec):
        order[place] = axis
    return result.transpose(order)
