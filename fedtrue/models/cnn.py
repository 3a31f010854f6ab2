"""The small convolutional network of the MNIST and EMNIST benchmarks."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from fedtrue.models.convolution import convolve, max_pool
from fedtrue.models.model import Model, Params, dense, glorot_uniform, init_dense


def small_cnn(
    classes: int,
    image_shape: tuple[int, int, int] = (28, 28, 1),
    dtype: DTypeLike = jnp.float32,
    method: str | None = None,
) -> Model:
    """Images (batch, height, width, channels) → logits (batch, classes).

    3×3 convolution 32 → ReLU → 3×3 convolution 64 → ReLU → 2×2 max pool → Dense 128 → ReLU → Dense(classes), without
    padding; Glorot-uniform kernels, biases 0.

    Args:
        classes: number of logits.
        image_shape: (height, width, channels).
        dtype: of the products; sums and weights are float32.
        method: how to convolve, see `convolve`; by default the fastest on this platform.

    >>> shapes = jax.eval_shape(small_cnn(10).init, jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(shapes))
    1199882
    """
    height, width, channels = image_shape
    pooled = ((height - 4) // 2) * ((width - 4) // 2) * 64  # each convolution removes 2 rows and 2 columns

    def init(key: Array) -> Params:
        keys = jax.random.split(key, 4)
        return {
            "conv_0": init_convolution(keys[0], channels, 32),
            "conv_1": init_convolution(keys[1], 32, 64),
            "dense_0": init_dense(keys[2], pooled, 128),
            "dense_1": init_dense(keys[3], 128, classes),
        }

    def apply(params: Params, images: Array) -> Array:
        convolved = lambda images, layer: convolve(images, layer["kernel"], padding="VALID", method=method, dtype=dtype)
        images = jax.nn.relu(convolved(images, params["conv_0"]) + params["conv_0"]["bias"])
        # max(relu(x)) = relu(max(x)): pooling first leaves a quarter of the work for bias and ReLU.
        images = jax.nn.relu(max_pool(convolved(images, params["conv_1"]), 2) + params["conv_1"]["bias"])
        features = images.reshape(images.shape[0], pooled)
        return dense(params["dense_1"], jax.nn.relu(dense(params["dense_0"], features, dtype)), dtype)

    return Model(init, apply)


def init_convolution(key: Array, inputs: int, filters: int) -> Params:
    """A 3×3 kernel, Glorot-uniform, and bias 0."""
    kernel = glorot_uniform(key, (3, 3, inputs, filters), jnp.float32)
    return {"kernel": kernel, "bias": jnp.zeros(filters, jnp.float32)}
