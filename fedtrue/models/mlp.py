"""A multilayer perceptron."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from fedtrue.models.model import Model, Params, dense, init_dense


def mlp(features: int, outputs: int, hidden: int = 128, layers: int = 1, dtype: DTypeLike = jnp.float32) -> Model:
    """Features (batch, features) → (batch, outputs): `layers` times Dense(hidden) and ReLU, then Dense(outputs).

    Args:
        features: width of the input.
        outputs: number of logits or predicted numbers.
        hidden: units per hidden layer.
        layers: number of hidden layers.
        dtype: of the products; sums and weights are float32.

    >>> model = mlp(features=4, outputs=3)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((5, 4))).shape
    (5, 3)
    """

    def init(key: Array) -> Params:
        keys = jax.random.split(key, layers + 1)
        widths = [features, *[hidden] * layers, outputs]
        return {f"dense_{i}": init_dense(keys[i], widths[i], widths[i + 1]) for i in range(layers + 1)}

    def apply(params: Params, inputs: Array) -> Array:
        for layer in range(layers):
            inputs = jax.nn.relu(dense(params[f"dense_{layer}"], inputs, dtype))
        return dense(params[f"dense_{layers}"], inputs, dtype)

    return Model(init, apply)
