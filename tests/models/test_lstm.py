"""The LSTM's backward pass equals the textbook's, padding does not change it, the networks have the paper's size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedtrue.models import count_weights, language_model, token_cross_entropy
from fedtrue.models.lstm import PAD_MULTIPLE, init_lstm, lstm, pad_gates, plain_lstm
from fedtrue.models.model import matmul
from fedtrue.precision import float64

TIME, BATCH, LANES = 7, 3, 4


def problem(hidden, lanes=(), dtype=np.float32):
    """Projected inputs, a recurrent kernel, and an arbitrary gradient for the outputs."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(*lanes, TIME, BATCH, 4 * hidden)).astype(dtype)
    kernel = (rng.normal(size=(*lanes, hidden, 4 * hidden)) / np.sqrt(hidden)).astype(dtype)
    return inputs, kernel, rng.normal(size=(*lanes, TIME, BATCH, hidden)).astype(dtype)


def value_and_gradients(layer):
    def run(inputs, kernel, gradient):
        value, backward = jax.vjp(layer, inputs, kernel)
        return value, *backward(gradient)

    return jax.jit(run)


def assert_equal(ours, theirs, rtol):
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


@pytest.mark.parametrize(("hidden", "unroll"), [(8, 1), (10, 1), (10, 2)])
def test_lstm_backward_equals_autodiff_of_the_textbook_cell(hidden, unroll):
    own = value_and_gradients(lambda x, r: lstm(x, r, unroll=unroll))
    assert_equal(own(*problem(hidden)), value_and_gradients(plain_lstm)(*problem(hidden)), rtol=1e-5)


def test_lstm_backward_equals_the_textbook_cell_in_every_lane():
    lanes = problem(10, (LANES,))
    own = jax.vmap(value_and_gradients(lstm))(*lanes)
    assert_equal(own, jax.vmap(value_and_gradients(plain_lstm))(*lanes), rtol=1e-5)


def test_lstm_backward_equals_the_textbook_cell_to_float64():
    with float64():
        inputs = problem(10, dtype=np.float64)
        own = value_and_gradients(lstm)(*inputs)
        assert all(a.dtype == jnp.float64 for a in own)
        assert_equal(own, value_and_gradients(plain_lstm)(*inputs), rtol=1e-12)


@pytest.mark.parametrize("pad_multiple", [8, 32])
def test_padding_the_hidden_size_does_not_change_the_result(pad_multiple):
    padded = value_and_gradients(lambda x, r: lstm(x, r, pad_multiple=pad_multiple))(*problem(10))
    unpadded = value_and_gradients(lambda x, r: lstm(x, r, pad_multiple=1))(*problem(10))
    assert_equal(padded, unpadded, rtol=1e-6)


def test_padded_units_stay_zero_forward_and_backward():
    inputs, kernel, gradient = problem(10)
    padding = [(0, 6), (0, 0)]  # 10 → 16
    kernel = jnp.pad(pad_gates(kernel), padding)
    gradient = jnp.pad(gradient, [(0, 0), (0, 0), (0, 6)])
    states, inputs_gradient, kernel_gradient = value_and_gradients(lstm)(pad_gates(inputs), kernel, gradient)
    assert (states[..., 10:] == 0).all()
    assert (inputs_gradient.reshape(TIME, BATCH, 4, 16)[..., 10:] == 0).all()
    assert (kernel_gradient[10:] == 0).all() and (kernel_gradient.reshape(16, 4, 16)[..., 10:] == 0).all()


def test_pad_gates_pads_each_gate_separately():
    padded = pad_gates(jnp.arange(1, 5), pad_multiple=2)  # i, f, g, o of one unit
    assert padded.tolist() == [1, 0, 2, 0, 3, 0, 4, 0]
    assert pad_gates(jnp.ones(4 * PAD_MULTIPLE)).shape == (4 * PAD_MULTIPLE,)


def test_bfloat16_lstm_is_close_to_float32_and_returns_the_kernel_gradient_in_float32():
    inputs, kernel, gradient = problem(16)
    half = jnp.asarray(inputs, jnp.bfloat16)
    states, _, kernel_gradient = value_and_gradients(lstm)(
        half, jnp.asarray(kernel), jnp.asarray(gradient, jnp.bfloat16)
    )
    expected_states, _, expected = value_and_gradients(lstm)(inputs, kernel, gradient)
    assert states.dtype == jnp.bfloat16 and kernel_gradient.dtype == jnp.float32
    np.testing.assert_allclose(states.astype(np.float32), expected_states, atol=0.02)  # 8 bits: steps of 1/256
    np.testing.assert_allclose(kernel_gradient, expected, atol=0.03 * np.abs(expected).max())


def test_lstm_is_initialised_with_an_orthogonal_kernel_and_forget_bias_1():
    params = init_lstm(jax.random.key(0), inputs=50, hidden=12)
    recurrent = np.asarray(params["recurrent_kernel"])
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(12), atol=1e-5)  # in NumPy: a GPU would round to TF32
    assert params["bias"].tolist() == [0] * 12 + [1] * 12 + [0] * 24  # i, f, g, o
    assert float(params["kernel"].std()) == pytest.approx((2 / 50) ** 0.5, rel=0.05)  # He: √(2 / inputs)
    assert (
        float(jnp.abs(params["kernel"]).max()) <= 2 * (2 / 50) ** 0.5 / 0.87962566
    )  # truncated at two standard deviations


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        # 10004·96 + 4·670·(96 + 670 + 1) + (670 + 1)·96 + (96 + 1)·10004
        ({"vocabulary": 10_004, "embedding": 96, "hidden": 670, "projection": 96}, 4_050_748),
        # 90·8 + 4·256·(8 + 256 + 1) + 4·256·(256 + 256 + 1) + (256 + 1)·90
        ({"vocabulary": 90, "embedding": 8, "hidden": 256, "layers": 2}, 820_522),
    ],
)
def test_language_models_have_the_papers_number_of_weights(settings, weights):
    assert count_weights(jax.eval_shape(language_model(**settings).init, jax.random.key(0))) == weights


def textbook_language_model(params, tokens):
    """The same network from `plain_lstm`, indexing and plain products."""
    states = params["embedding"][tokens.T]
    for layer in ("lstm_0", "lstm_1"):
        p = params[layer]
        states = plain_lstm(matmul(states, p["kernel"]) + p["bias"], p["recurrent_kernel"])
    for layer in ("projection", "output"):
        states = matmul(states, params[layer]["kernel"]) + params[layer]["bias"]
    return states.swapaxes(0, 1)


def test_language_model_and_its_gradient_equal_the_textbook_network():
    model = language_model(30, 5, 10, layers=2, projection=6)
    params = jax.jit(model.init)(jax.random.key(0))
    tokens = np.random.default_rng(0).integers(0, 30, (BATCH, TIME + 1), dtype=np.uint8)

    def loss(apply):
        return lambda params: token_cross_entropy(apply(params, tokens[:, :-1]), tokens[:, 1:]).mean()

    value, gradient = jax.jit(jax.value_and_grad(loss(model.apply)))(params)
    expected_value, expected = jax.jit(jax.value_and_grad(loss(textbook_language_model)))(params)
    assert float(value) == pytest.approx(float(expected_value), rel=1e-6)
    assert_equal(jax.tree.leaves(gradient), jax.tree.leaves(expected), rtol=2e-5)


def test_bfloat16_language_model_keeps_float32_weights_gradients_and_logits():
    model = language_model(30, 5, 10, projection=6, dtype=jnp.bfloat16)
    params = jax.eval_shape(model.init, jax.random.key(0))
    tokens = jnp.arange(12).reshape(3, 4)

    def loss(params):
        logits = model.apply(params, tokens)
        return token_cross_entropy(logits, tokens).mean(), logits

    gradient, logits = jax.eval_shape(jax.grad(loss, has_aux=True), params)
    assert logits.dtype == jnp.float32 and logits.shape == (3, 4, 30)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((params, gradient)))
