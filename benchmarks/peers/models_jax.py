"""The models in plain JAX: `LOSSES[name](weights, x, y)` is the loss of each example."""

import jax
import jax.numpy as jnp


def _cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)[..., 0]


def _lstm(inputs, kernel, recurrent, bias):
    """(time, batch, features) → (time, batch, hidden)."""

    def cell(carry, projected):
        h, c = carry
        i, f, g, o = jnp.split(projected + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((inputs.shape[1], recurrent.shape[0]))
    return jax.lax.scan(cell, (zero, zero), inputs @ kernel + bias)[1]


def shakespeare(w, x, y):
    states = w["embedding"][x.T]
    for layer in (0, 1):
        states = _lstm(states, w[f"input_{layer}"], w[f"recurrent_{layer}"], w[f"bias_{layer}"])
    return _cross_entropy(states @ w["output"] + w["output_bias"], y.T).mean(axis=0)


def tags(w, x, y):
    logits = x @ w["kernel"] + w["bias"]
    return (jax.nn.softplus(logits) - logits * y).sum(axis=-1)


def _convolve(w, x, layer, padding):
    layout = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, w[layer], (1, 1), padding, dimension_numbers=layout)
    return jax.nn.relu(x + w[f"{layer}_bias"])


def _pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _classify(w, x, y):
    x = jax.nn.relu(x.reshape(len(x), -1) @ w["dense_0"] + w["dense_0_bias"])
    return _cross_entropy(x @ w["dense_1"] + w["dense_1_bias"], y)


def cnn(w, x, y):
    return _classify(w, _pool(_convolve(w, _convolve(w, x, "conv_0", "VALID"), "conv_1", "VALID")), y)


def pooled(w, x, y):
    return _classify(w, _pool(_convolve(w, _pool(_convolve(w, x, "conv_0", "SAME")), "conv_1", "SAME")), y)


LOSSES = {"shakespeare": shakespeare, "tags": tags, "cnn": cnn, "pooled": pooled}
