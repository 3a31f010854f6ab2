"""Every rule computes what the primitive computes: values and gradients, for each platform's table.

The rules of all platforms are traced here on the CPU; `Program(…, platform="gpu")` takes the GPU's table.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedtrue.lowering import Program

PLATFORMS = ("cpu", "gpu")
LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
CHANNELS_FIRST = {1: ("NCW", "OIW", "NCW"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCDHW", "OIDHW", "NCDHW")}
TOLERANCE = {jnp.float32: 1e-5, jnp.bfloat16: 2e-2}


def normal(seed, shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def assert_same(function, arguments, platform, tolerance=1e-5):
    """The program lowered by our rules gives what JAX's own gives."""
    ours, theirs = Program(function, platform=platform)(*arguments), jax.jit(function)(*arguments)
    for own, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert own.shape == other.shape and own.dtype == other.dtype
        own, other = np.asarray(own, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * max(1, np.abs(other).max()))


def value_and_gradients(function):
    """The result, and the gradients in every argument of Σ c · result, for fixed numbers c."""

    def of(*arguments):
        result, gradients_of = jax.vjp(function, *arguments)
        return result, gradients_of(normal(2, result.shape, result.dtype))

    return of


def convolutions(spatial, layout):
    """One function for each combination of strides, padding, dilations and groups."""
    for strides, padding, dilation, groups in itertools.product((1, 2), ("SAME", 1), (1, 2), (1, 2)):
        yield (
            lambda x, k, strides=strides, padding=padding, dilation=dilation: lax.conv_general_dilated(
                x,
                k,
                (strides,) * spatial,
                padding if isinstance(padding, str) else ((padding, padding + 1),) * spatial,
                lhs_dilation=(1,) * spatial if isinstance(padding, str) else (2,) * spatial,
                rhs_dilation=(dilation,) * spatial,
                dimension_numbers=layout,
                feature_group_count=x.shape[layout[0].index("C")] // k.shape[layout[1].index("I")],
            ),
            groups,
        )


def arrays_of(spatial, layout, groups, dtype):
    sizes = {"N": 2, "C": 4, "I": 4 // groups, "O": 6}
    x = normal(0, [sizes.get(axis, 6) for axis in layout[0]], dtype)
    return x, normal(1, [sizes.get(axis, 3) for axis in layout[1]], dtype)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("spatial", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("layouts", [LAYOUTS, CHANNELS_FIRST], ids=["channels_last", "channels_first"])
def test_convolutions_keep_their_values_and_gradients(platform, spatial, dtype, layouts):
    layout = layouts[spatial]
    cases = list(convolutions(spatial, layout))

    def all_of_them(*arrays):
        return [value_and_gradients(conv)(*arrays[groups - 1]) for conv, groups in cases]

    arrays = [arrays_of(spatial, layout, groups, dtype) for groups in (1, 2)]
    assert_same(all_of_them, arrays, platform, TOLERANCE[dtype])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_convolutions_with_weights_per_lane_keep_their_values_and_gradients(platform):
    layout = LAYOUTS[2]
    cases = [conv for conv, groups in convolutions(2, layout) if groups == 1]
    x, k = arrays_of(2, layout, 1, jnp.float32)
    lanes = jnp.stack([x, -x, 2 * x]), jnp.stack([k, k / 2, -k])
    assert_same(lambda *a: [jax.vmap(value_and_gradients(conv))(*a) for conv in cases], lanes, platform)


@pytest.mark.parametrize("groups", [8, 40])
def test_convolutions_per_channel_keep_their_values_and_gradients(groups):
    def conv(x, k):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups)

    arrays = normal(0, (2, 6, 6, groups)), normal(1, (3, 3, 1, groups))
    for platform in PLATFORMS:
        assert_same(value_and_gradients(conv), arrays, platform)


def network(x, k):
    """A convolution, a ReLU and a pool, as users write them."""
    y = jax.nn.relu(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def inside_a_loop(x, k):
    return lax.fori_loop(0, 3, lambda i, k: k - 0.1 * jax.grad(lambda k: network(x, k).sum())(k), k)


def inside_a_scan(x, k):
    return lax.scan(lambda k, row: (k - 0.1 * jax.grad(lambda k: network(row, k).sum())(k), k.sum()), k, x[:, None])


def rematerialised(x, k):
    return jax.grad(lambda k: jax.checkpoint(network)(x, k).sum())(k)


@jax.custom_vjp
def doubled_gradient(x, k):
    return network(x, k)


doubled_gradient.defvjp(
    lambda x, k: (network(x, k), (x, k)),
    lambda kept, g: tuple(2 * part for part in jax.vjp(network, *kept)[1](g)),
)


def with_its_own_gradient(x, k):
    return jax.grad(lambda k: doubled_gradient(x, k).sum())(k)


def compiled_inside(x, k):
    return jax.jit(jax.grad(lambda k: jax.jit(network)(x, k).sum()))(k)


def chosen_by_a_condition(x, k):
    return lax.cond(k.sum() > 0, lambda: network(x, k), lambda: network(-x, k))


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    "function",
    [inside_a_loop, inside_a_scan, rematerialised, with_its_own_gradient, compiled_inside, chosen_by_a_condition],
)
def test_rules_hold_wherever_a_program_has_the_operation(platform, function):
    arrays = normal(0, (2, 8, 8, 2)), normal(1, (3, 3, 2, 4))
    assert_same(function, arrays, platform)
    text = Program(function, platform=platform).lower(*arrays).as_text()
    assert "reduce_window" not in text and "select_and_scatter" not in text  # a rule was used, not JAX's own


@pytest.mark.parametrize("platform", PLATFORMS)
def test_grouped_convolutions_are_not_left_to_the_compiler(platform):
    arrays = jnp.stack([normal(0, (2, 8, 8, 2))] * 3), jnp.stack([normal(1, (3, 3, 2, 4))] * 3)
    program = jax.vmap(value_and_gradients(network))
    single = "feature_group_count = 1"
    assert "feature_group_count = 3" in jax.jit(program).lower(*arrays).as_text()  # what vmap makes
    text = Program(program, platform=platform).lower(*arrays).as_text()
    assert text.count("feature_group_count") == text.count(single) == text.count("batch_group_count = 1")


@pytest.mark.parametrize(
    "window, strides, padding",
    [((2, 2), (2, 2), "VALID"), ((3, 3), (2, 2), "SAME"), ((3, 2), (1, 2), "SAME"), ((2, 2), (2, 2), "SAME")],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_pools_keep_their_values_and_gradients(window, strides, padding, dtype):
    def pools(x):
        sizes = (1, *window, 1), (1, *strides, 1), padding
        largest = lax.reduce_window(x, -jnp.inf, lax.max, *sizes)
        return jnp.stack([largest, lax.reduce_window(x, 0.0, lax.add, *sizes)])

    x = normal(0, (2, 7, 8, 3), dtype)
    assert_same(value_and_gradients(pools), (x,), "cpu", TOLERANCE[dtype])
    assert_same(jax.vmap(value_and_gradients(pools)), (jnp.stack([x, -x]),), "cpu", TOLERANCE[dtype])


def test_of_equal_values_the_first_gets_the_gradient():
    pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID").sum()
    gradient = Program(jax.grad(pool))(jnp.ones((2, 4)))
    assert gradient.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0]]  # two windows of four ones


def test_a_pool_of_integers_is_left_alone():
    pool = lambda x: lax.reduce_window(x, 0, lax.add, (2,), (1,), "VALID")
    assert Program(pool)(jnp.arange(4)).tolist() == [1, 3, 5]
