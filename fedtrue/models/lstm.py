"""An LSTM with a hand-written backward pass, and the language models built on it.

    z_t = x_t·W + b + h_{t−1}·R
    i, f, g, o = σ(z_i), σ(z_f), tanh(z_g), σ(z_o)         gate order i, f, g, o
    c_t = f·c_{t−1} + i·g
    h_t = o·tanh(c_t)

x·W + b is one product over all time steps, computed before the loop; `lstm` does the rest.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from fedtrue.models.embedding import embed
from fedtrue.models.model import Model, Params, accumulation_dtype, dense, init_dense, matmul, product

# Time steps per iteration of the loop, as measured. Shakespeare's gradient in 10 lanes on an H200: 3.6 ms at 1,
# 2.3 at 4, 2.2 at 8; a round of 80 characters in 3 lanes: 98 ms at 8, 105 at 20. A round of 20 words in 50 lanes:
# 57.2 ms at 8, 55.7 without a loop, which stores no slices and no Rᵀ. One layer on two CPU cores: 10 ms at 1 and 2,
# 14 at 4.
UNROLL_ON_CPU, UNROLL_ON_ACCELERATOR, MAX_STEPS_WITHOUT_LOOP = 1, 8, 20
PAD_MULTIPLE = 16  # 670 hidden units run as 672, 10,004 words as 10,016: tensor cores need rows of 32 bytes


def plain_lstm(inputs_projected: Array, recurrent_kernel: Array) -> Array:
    """The textbook cell, differentiated by JAX: the reference for `lstm`."""
    hidden = recurrent_kernel.shape[0]

    def cell(carry, z):
        h, c = carry
        i, f, g, o = jnp.split(z + matmul(h, recurrent_kernel), 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((inputs_projected.shape[1], hidden), inputs_projected.dtype)
    return lax.scan(cell, (zero, zero), inputs_projected)[1]


def pad_gates(gates: Array, pad_multiple: int = PAD_MULTIPLE) -> Array:
    """(…, 4·H) → (…, 4·H′): each of the four blocks is padded with zeros to H′, the next multiple of `pad_multiple`."""
    hidden = gates.shape[-1] // 4
    padding = -hidden % pad_multiple
    if padding == 0:
        return gates
    blocks = gates.reshape(*gates.shape[:-1], 4, hidden)
    blocks = jnp.pad(blocks, [(0, 0)] * (blocks.ndim - 1) + [(0, padding)])
    return blocks.reshape(*gates.shape[:-1], 4 * (hidden + padding))


def lstm(
    inputs_projected: Array, recurrent_kernel: Array, pad_multiple: int = PAD_MULTIPLE, unroll: int | None = None
) -> Array:
    """h_1 … h_T (time, batch, H) from x·W + b (time, batch, 4·H) and R (H, 4·H).

    Products are computed in the dtype of `inputs_projected`, cell states in float32; the gradient of R has R's dtype.

    H is padded to a multiple of `pad_multiple`, which does not change the result: a padded unit has z = 0 at all times,
    so g = tanh(0) = 0, c = f·c = 0 from c_0 = 0, and h = 0; it does not affect other units, since its row of R is 0.
    Inputs that are padded already (`pad_gates` on W and b is cheaper than on x·W + b) are not padded again.
    """
    hidden = recurrent_kernel.shape[0]
    recurrent_kernel = jnp.pad(pad_gates(recurrent_kernel, pad_multiple), [(0, -hidden % pad_multiple), (0, 0)])
    if inputs_projected.shape[-1] != recurrent_kernel.shape[-1]:
        inputs_projected = pad_gates(inputs_projected, pad_multiple)
    if unroll is None:
        unroll = _unroll(time=inputs_projected.shape[0])
    return _lstm(inputs_projected, recurrent_kernel, unroll)[..., :hidden]


def _unroll(time: int) -> int:
    if jax.default_backend() == "cpu":
        return UNROLL_ON_CPU
    return time if time <= MAX_STEPS_WITHOUT_LOOP else UNROLL_ON_ACCELERATOR


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _lstm(inputs_projected: Array, recurrent_kernel: Array, unroll: int) -> Array:
    return _lstm_forward(inputs_projected, recurrent_kernel, unroll)[0]


def _lstm_forward(inputs_projected, recurrent_kernel, unroll):
    dtype = inputs_projected.dtype
    wide = accumulation_dtype(dtype)
    kernel = recurrent_kernel.astype(dtype)

    def cell(carry, z):
        h, c = carry
        i, f, g, o = jnp.split(z + matmul(h, kernel), 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * c + i * g
        h = (o * jnp.tanh(c)).astype(dtype)
        return (h, c), (h, c, tuple(gate.astype(dtype) for gate in (i, f, g, o)))

    shape = (inputs_projected.shape[1], recurrent_kernel.shape[0])
    start = (jnp.zeros(shape, dtype), jnp.zeros(shape, wide))
    _, (hs, cs, gates) = lax.scan(cell, start, inputs_projected, unroll=unroll)
    return hs, (hs, cs, gates, recurrent_kernel)


def _lstm_backward(unroll, residuals, hs_gradient):
    """Backwards in time, with ḣ the gradient of h and the gates saved by the forward pass:

        ċ ← ċ + ḣ·o·(1 − tanh²c)
        ż = [ċ·g·i(1−i),  ċ·c_{t−1}·f(1−f),  ċ·i·(1−g²),  ḣ·tanh(c)·o(1−o)]
        ḣ_{t−1} = ż·Rᵀ,   ċ_{t−1} = ċ·f

    The gradient of R, Σ_t h_{t−1}ᵀ·ż_t, is one product over time and batch instead of one small product per step:
    that halves the time on CPU and on GPU.
    """
    hs, cs, gates, recurrent_kernel = residuals
    dtype, wide = hs.dtype, cs.dtype
    # Transposed once, outside the loop: XLA's CPU product is half as fast if it reads R column by column.
    kernel_transposed = recurrent_kernel.astype(dtype).T

    def cell(carry, at_t):
        h_gradient, c_gradient = carry
        h_gradient_here, c, c_before, (i, f, g, o) = at_t
        i, f, g, o = (gate.astype(wide) for gate in (i, f, g, o))
        tanh_c = jnp.tanh(c)
        h_gradient = h_gradient + h_gradient_here
        c_gradient = c_gradient + h_gradient * o * (1 - tanh_c * tanh_c)
        z_gradient = jnp.concatenate(
            [
                c_gradient * g * i * (1 - i),
                c_gradient * c_before * f * (1 - f),
                c_gradient * i * (1 - g * g),
                h_gradient * tanh_c * o * (1 - o),
            ],
            axis=-1,
        ).astype(dtype)
        h_gradient = matmul(z_gradient, kernel_transposed)
        return (h_gradient, c_gradient * f), z_gradient

    zero = jnp.zeros(cs.shape[1:], wide)
    at_all_t = (hs_gradient, cs, _one_step_later(cs), gates)
    _, z_gradients = lax.scan(cell, (zero, zero), at_all_t, reverse=True, unroll=unroll)
    rows = _one_step_later(hs).reshape(-1, hs.shape[-1])
    columns = z_gradients.reshape(-1, z_gradients.shape[-1])
    kernel_gradient = matmul(rows.T, columns)
    return z_gradients, kernel_gradient.astype(recurrent_kernel.dtype)


def _one_step_later(states: Array) -> Array:
    """0, s_1, …, s_{T−1}: the state before each time step."""
    return jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])


_lstm.defvjp(_lstm_forward, _lstm_backward)


def init_lstm(key: Array, inputs: int, hidden: int) -> Params:
    """As in the reference: W He-normal (truncated), R orthogonal (R·Rᵀ = I), b = 0, but 1 for the forget gate."""
    kernel_key, recurrent_key = jax.random.split(key)
    return {
        "kernel": jax.nn.initializers.he_normal()(kernel_key, (inputs, 4 * hidden), jnp.float32),
        "recurrent_kernel": jax.nn.initializers.orthogonal()(recurrent_key, (hidden, 4 * hidden), jnp.float32),
        "bias": jnp.repeat(jnp.array([0, 1, 0, 0], jnp.float32), hidden),
    }


def lstm_layer(params: Params, inputs: Array, dtype: DTypeLike = jnp.float32, unroll: int | None = None) -> Array:
    """(time, batch, inputs) → (time, batch, H)."""
    kernel, bias = pad_gates(params["kernel"]), pad_gates(params["bias"])
    projected = product(inputs, kernel, dtype, dtype) + bias.astype(dtype)
    return lstm(projected, params["recurrent_kernel"], unroll=unroll)


def _pad_outputs(params: Params) -> Params:
    """Pad with zeros to the next multiple of PAD_MULTIPLE: XLA would else pad the logits' gradient in an extra pass."""
    return {
        name: jnp.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, -w.shape[-1] % PAD_MULTIPLE)]) for name, w in params.items()
    }


def language_model(
    vocabulary: int,
    embedding: int,
    hidden: int,
    layers: int = 1,
    projection: int | None = None,
    dtype: DTypeLike = jnp.float32,
    unroll: int | None = None,
) -> Model:
    """Tokens (batch, time) → logits of the next token (batch, time, vocabulary).

    Embedding (uniform ±0.05) → LSTM × layers → Dense(projection), if given, without activation → Dense(vocabulary).
    Stack Overflow: `language_model(10_004, 96, 670, projection=96)`, 4,050,748 weights.
    Shakespeare: `language_model(90, 8, 256, layers=2)`, 820,522 weights.

    Args:
        vocabulary: number of token ids, padding included.
        embedding: width of the embedding.
        hidden: units per LSTM layer.
        layers: number of LSTM layers.
        projection: width of a dense layer before the output; None for no such layer.
        dtype: of the products; sums and weights are float32.
        unroll: time steps per iteration of the loop; chosen by platform if None.
    """

    def init(key: Array) -> Params:
        keys = jax.random.split(key, layers + 3)
        params: Params = {"embedding": jax.random.uniform(keys[0], (vocabulary, embedding), jnp.float32, -0.05, 0.05)}
        for layer in range(layers):
            params[f"lstm_{layer}"] = init_lstm(keys[1 + layer], hidden if layer else embedding, hidden)
        if projection is not None:
            params["projection"] = init_dense(keys[-2], hidden, projection)
        params["output"] = init_dense(keys[-1], projection or hidden, vocabulary)
        return params

    def apply(params: Params, tokens: Array) -> Array:
        states = embed(params["embedding"], tokens.T)
        for layer in range(layers):
            states = lstm_layer(params[f"lstm_{layer}"], states, dtype, unroll)
        if projection is not None:
            states = dense(params["projection"], states, dtype)
        # Back to batch-major before the output layer, where a token has fewer numbers than after it.
        return dense(_pad_outputs(params["output"]), states.swapaxes(0, 1), dtype)[..., :vocabulary]

    return Model(init, apply)
