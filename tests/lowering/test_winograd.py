"""Winograd's convolutions are convolutions: exactly in algebra, to rounding in float32."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedtrue.lowering import Program, convolution, winograd
from fedtrue.precision import float64
from tests.lowering.test_rules import CHANNELS_FIRST, LAYOUTS, assert_same, normal, value_and_gradients

SIZES = [(4, 4), (5, 9), (1, 3), (10, 6)]  # of the result: multiples of the block, and others


def direct(images, kernel, padding="VALID"):
    return lax.conv_general_dilated(images, kernel, (1, 1), padding, dimension_numbers=LAYOUTS[2])


@pytest.mark.parametrize("height, width", SIZES)
def test_the_three_forms_are_the_convolution_and_its_gradients(height, width):
    with float64():
        images, kernel = normal(0, (2, height + 2, width + 2, 3), jnp.float64), normal(1, (3, 3, 3, 5), jnp.float64)
        gradient = normal(2, (2, height, width, 5), jnp.float64)
        result, gradients_of = jax.vjp(direct, images, kernel)
        for_images, for_kernel = gradients_of(gradient)
        flipped = kernel[::-1, ::-1].transpose(0, 1, 3, 2)  # the gradient of the images is a convolution with this
        np.testing.assert_allclose(winograd.convolve(images, kernel), result, atol=1e-12)
        np.testing.assert_allclose(winograd.convolve_transposed(gradient, flipped), for_images, atol=1e-12)
        np.testing.assert_allclose(winograd.kernel_gradient(images, gradient), for_kernel, atol=1e-12)


@pytest.mark.parametrize("layouts", [LAYOUTS, CHANNELS_FIRST], ids=["channels_last", "channels_first"])
@pytest.mark.parametrize("padding", ["SAME", "VALID", ((2, 0), (1, 2)), ((3, 0), (0, 4)), ((-1, 0), (0, 1))])
def test_users_convolutions_keep_their_values_and_gradients(layouts, padding, monkeypatch):
    monkeypatch.setattr(convolution, "MAX_WINOGRAD_COST", 10.0)  # also where it does not pay
    layout = layouts[2]
    sizes = {"N": 2, "C": 5, "I": 5, "O": 6, "H": 17, "W": 14}
    images = normal(0, [sizes[axis] for axis in layout[0]])
    kernel = normal(1, [3 if axis in "HW" else sizes[axis] for axis in layout[1]])

    def conv(images, kernel):
        return lax.conv_general_dilated(images, kernel, (1, 1), padding, dimension_numbers=layout)

    applied = [
        convolution.is_winograd([v.aval for v in equation.invars], equation.params)
        for equation in jax.make_jaxpr(value_and_gradients(conv))(images, kernel).eqns
        if equation.primitive is lax.conv_general_dilated_p
    ]
    assert applied == [True, True, True]
    assert_same(value_and_gradients(conv), (images, kernel), "cpu", tolerance=3e-5)
    lanes = jnp.stack([images, -images]), jnp.stack([kernel, kernel / 2])
    assert_same(jax.vmap(value_and_gradients(conv)), lanes, "cpu", tolerance=3e-5)


def test_a_convolution_with_the_highest_precision_is_summed_directly():
    images, kernel = normal(0, (4, 16, 16, 64)), normal(1, (3, 3, 64, 64))

    def conv(images, kernel, precision):
        return lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=LAYOUTS[2], precision=precision
        )

    with float64():
        exact = np.asarray(conv(images.astype(jnp.float64), kernel.astype(jnp.float64), None))
    errors = [
        np.abs(np.asarray(Program(lambda *a, p=precision: conv(*a, p))(images, kernel)) - exact).max()
        for precision in (None, lax.Precision.HIGHEST)
    ]
    assert errors[1] < errors[0] / 2


def test_it_is_used_where_it_needs_fewer_multiplications():
    """32 → 64 channels, 24 × 24 results: 36 tiles · 36 · (36 · 32 + 16 · 64 + 32 · 64) + 36 · 9 · 32 · 64 / 20 images
    over 576 · 9 · 32 · 64 is 0.52. Of one channel the transforms alone cost more than the sum."""
    assert winograd.relative_cost(20, (24, 24), 32, 64) == pytest.approx(0.519, abs=1e-3)
    assert winograd.relative_cost(20, (26, 26), 1, 32) > 1
    for images, into, out in itertools.product((1, 20), (3, 64), (3, 64)):
        assert winograd.relative_cost(images, (2, 2), into, out) > convolution.MAX_WINOGRAD_COST  # tiles of 4 × 4
