"""CNN, logistic regression and ResNet: sizes, shapes, and equality with the plain networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedtrue.models import (
    bag_of_words,
    bag_product,
    count_weights,
    logistic_regression,
    resnet18,
    small_cnn,
    word_regression,
)
from fedtrue.models.model import product
from fedtrue.models.resnet import EPSILON, group_norm


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        (small_cnn(62), 1_206_590),  # (9 + 1)·32 + (9·32 + 1)·64 + (12·12·64 + 1)·128 + (128 + 1)·62
        (logistic_regression(10_000, 500), 5_000_500),  # 10,000·500 + 500
        (resnet18(100), 11_227_812),  # 11,166,912 + 2·4,800 + 513·100, see its docstring
    ],
    ids=["cnn", "logistic regression", "resnet18"],
)
def test_networks_have_the_published_number_of_weights(model, weights):
    assert count_weights(jax.eval_shape(model.init, jax.random.key(0))) == weights


def full_precision(network):
    """The network with full float32 products; a GPU's default would round every factor to 10 bits (TF32)."""

    def apply(*arguments):
        with jax.default_matmul_precision("highest"):
            return network(*arguments)

    return apply


@full_precision
def plain_cnn(params, x):
    for layer in ("conv_0", "conv_1"):
        layout = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(x, params[layer]["kernel"], (1, 1), "VALID", dimension_numbers=layout)
        x = jax.nn.relu(x + params[layer]["bias"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["dense_0"]["kernel"] + params["dense_0"]["bias"])
    return x @ params["dense_1"]["kernel"] + params["dense_1"]["bias"]


def test_small_cnn_and_its_gradient_equal_the_plain_network_in_every_lane():
    model = small_cnn(5, (10, 12, 2))
    params = jax.jit(jax.vmap(model.init))(jax.random.split(jax.random.key(0), 2))
    images = jax.random.normal(jax.random.key(1), (2, 3, 10, 12, 2))

    def run(apply):
        return jax.jit(jax.vmap(jax.value_and_grad(lambda params, x: (apply(params, x) ** 2).sum())))(params, images)

    for own, plain in zip(jax.tree.leaves(run(model.apply)), jax.tree.leaves(run(plain_cnn))):
        np.testing.assert_allclose(own, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


def test_resnet_stages_run_on_six_by_six_maps():
    model = resnet18(7)
    params = jax.eval_shape(model.init, jax.random.key(0))
    images = jax.ShapeDtypeStruct((2, 24, 24, 3), jnp.float32)
    program = str(jax.make_jaxpr(model.apply)(params, images))
    assert "f32[2,6,6,512]" in program and "f32[2,3,3" not in program  # never below 6×6
    logits = jax.eval_shape(model.apply, params, images)
    assert logits.shape == (2, 7) and logits.dtype == jnp.float32


@full_precision
def plain_resnet(params, x):
    """He et al.'s pre-activation network, written from the docstring with XLA's convolution."""

    def conv(x, kernel, strides=1):
        return lax.conv_general_dilated(
            x, kernel, (strides, strides), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    x = jax.nn.relu(group_norm(params["stem"]["norm"], conv(x, params["stem"]["conv"], 2)))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage in range(4):
        for block in range(2):
            p = params[f"block_{stage}_{block}"]
            y = x if (stage, block) == (0, 0) else jax.nn.relu(group_norm(p["norm_0"], x))
            y = conv(jax.nn.relu(group_norm(p["norm_1"], conv(y, p["conv_0"]))), p["conv_1"])
            widens = stage > 0 and block == 0
            x = y + (group_norm(p["shortcut"]["norm"], conv(x, p["shortcut"]["conv"])) if widens else x)
    x = jax.nn.relu(group_norm(params["norm"], x)).mean(axis=(1, 2))
    return x @ params["output"]["kernel"] + params["output"]["bias"]


@pytest.mark.slow  # half a minute, nearly all compilation
def test_resnet_and_its_gradient_equal_the_plain_network():
    model = resnet18(7)
    params = jax.jit(model.init)(jax.random.key(0))
    images = jax.random.normal(jax.random.key(1), (2, 24, 24, 3))

    def run(apply):
        return jax.jit(jax.value_and_grad(lambda params: (apply(params, images) ** 2).sum()))(params)

    for own, plain in zip(jax.tree.leaves(run(model.apply)), jax.tree.leaves(run(plain_resnet))):
        assert np.abs(plain).max() > 0
        np.testing.assert_allclose(own, plain, rtol=1e-3, atol=1e-3 * np.abs(plain).max())


def test_group_norm_gives_each_group_of_channels_mean_0_and_variance_1():
    images = np.random.default_rng(0).normal(3, 5, (2, 6, 6, 4)).astype(np.float32)
    params = {"scale": jnp.ones(4), "bias": jnp.zeros(4)}
    groups = np.asarray(group_norm(params, images)).reshape(2, 36, 2, 2)
    variance = images.reshape(2, 36, 2, 2).var(axis=(1, 3))
    np.testing.assert_allclose(groups.mean(axis=(1, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(groups.var(axis=(1, 3)), variance / (variance + EPSILON), rtol=1e-4)


@pytest.mark.parametrize("id_type", [np.int32, np.uint16])
def test_bag_of_words_is_counts_divided_by_their_sum(id_type):
    words = np.array([[3, 1, 3, 0], [0, 0, 0, 0], [2, 7, 0, 0]], id_type)  # 0 is padding, 7 is not a feature
    expected = [[0, 1 / 3, 0, 2 / 3], [0, 0, 0, 0], [0, 0, 1, 0]]
    np.testing.assert_allclose(bag_of_words(words, 4, fill=0), expected, rtol=1e-7)
    np.testing.assert_allclose(bag_of_words(words[:1], 4), [[1 / 4, 1 / 4, 0, 2 / 4]])  # without a fill, 0 is a word


def test_bag_of_words_with_counts_equals_the_words_written_out():
    written_out = np.array([[5, 5, 5, 2, 2, 0, -1]])
    counted, times = np.array([[5, 2, 0, -1]]), np.array([[3, 2, 1, 9]])
    np.testing.assert_array_equal(bag_of_words(counted, 6, counts=times), bag_of_words(written_out, 6))


TEXTS = np.array(
    [[3, 1, 3, 0], [-1, -1, -1, -1], [2, 7, 0, 0]]
)  # a word twice; no words; 7 is not a word, 0 is padding in one case
COUNTS = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]])


@pytest.fixture(params=["cpu", "gpu"])
def platform(request, monkeypatch):
    """Both forms of a product that depends on the platform."""
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)


def value_and_gradient(multiply, kernel):
    value, backward = jax.vjp(multiply, kernel)
    return value, *backward(jnp.cos(jnp.arange(value.size, dtype=value.dtype)).reshape(value.shape))


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("counts", [None, COUNTS])
@pytest.mark.parametrize("fill", [-1, 0])
def test_bag_product_and_its_gradient_equal_the_dense_product(fill, counts):
    kernel = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    own = jax.jit(lambda k: value_and_gradient(lambda k: bag_product(TEXTS, k, fill, counts), k))(kernel)
    plain = value_and_gradient(full_precision(lambda k: bag_of_words(TEXTS, 4, fill, counts) @ k), kernel)
    for a, b in zip(own, plain):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("platform")
def test_bag_product_equals_the_dense_product_in_every_lane():
    kernels = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    texts = np.stack([TEXTS, TEXTS[::-1]])
    own = jax.vmap(lambda t, k: value_and_gradient(lambda k: bag_product(t, k), k))(texts, kernels)
    plain = jax.vmap(lambda t, k: value_and_gradient(full_precision(lambda k: bag_of_words(t, 4) @ k), k))(
        texts, kernels
    )
    for a, b in zip(own, plain):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("platform")
def test_bag_product_in_bfloat16_returns_float32_close_to_the_exact_result():
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5)), jnp.float32)
    half = value_and_gradient(lambda k: bag_product(TEXTS, k, dtype=jnp.bfloat16), kernel)
    for a, b in zip(half, value_and_gradient(lambda k: bag_product(TEXTS, k), kernel)):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, atol=0.03)  # four products of numbers below 2, each within 2⁻⁸


@pytest.mark.usefixtures("platform")
def test_word_regression_and_all_its_gradients_equal_logistic_regression_of_the_bags():
    by_words, by_bags = word_regression(4, 5), logistic_regression(4, 5)
    params = by_words.init(jax.random.key(0))
    own = jax.grad(lambda p: (by_words.apply(p, TEXTS.astype(np.uint16)) ** 2).sum())(params)
    plain = jax.grad(lambda p: (by_bags.apply(p, bag_of_words(TEXTS, 4)) ** 2).sum())(params)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(plain)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_product_and_its_gradients_equal_matmul():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 5)).astype(np.float32), rng.normal(size=(5, 4)).astype(np.float32)

    def gradients(multiply):
        return jax.grad(lambda x, w: (multiply(x, w) ** 2).sum(), (0, 1))(x, w)

    for a, b in zip(gradients(product), gradients(full_precision(jnp.matmul))):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_bfloat16_product_accumulates_in_float32():
    ones = jnp.ones((1, 1000), jnp.float32)
    assert product(ones, ones.T, jnp.bfloat16)[0, 0] == 1000  # bfloat16 holds 256 + 1 as 256, and 1000 exactly
    kernel_gradient = jax.grad(lambda w: product(jnp.ones((1001, 1)), w, jnp.bfloat16).sum())(jnp.ones((1, 1)))
    assert kernel_gradient[0, 0] == 1001  # bfloat16 would round it to 1000
