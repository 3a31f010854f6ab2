"""ResNet-18 with group normalisation, as the federated benchmarks on CIFAR-100 use it."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from fedtrue.models.convolution import convolve, max_pool
from fedtrue.models.model import Model, Params, dense, init_dense

STAGES = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2
GROUPS = 2  # the default of the reference's layer at that time
EPSILON = 1e-3  # likewise; PyTorch uses 1e-5


def resnet18(classes: int = 100, channels: int = 3, dtype: DTypeLike = jnp.float32, method: str | None = None) -> Model:
    """Images (batch, height, width, channels) → logits (batch, classes); 11,227,812 weights for 100 classes.

    The network of Reddi et al. (2021), "Adaptive Federated Optimization", in its published code:

        7×7 convolution 64, stride 2 → norm → ReLU → 3×3 max pool, stride 2            24×24 → 12×12 → 6×6
        4 stages of 2 blocks, 64, 128, 256, 512 filters, all at stride 1                6×6 throughout
        norm → ReLU → mean over the image → Dense(classes)

        block(x) = shortcut(x) + conv(relu(norm(conv(relu(norm(x))))))                  3×3, pre-activation

    - The first block has no first norm and ReLU: they are the last layers of the stem.
    - Where the number of channels changes, shortcut(x) = norm(1×1 convolution of x); elsewhere it is x.
    - Convolutions have no bias. Kernels are He-normal; the output kernel is normal with σ = 0.01, its bias 0.

    Weights: 11,166,912 in convolutions + 2·4,800 in norms + 512·100 + 100 in the output.

    Args:
        classes: number of logits.
        channels: of the images.
        dtype: of the products; sums and weights are float32.
        method: how to convolve, see `convolve`; by default the fastest on this platform.
    """

    def init(key: Array) -> Params:
        keys = iter(jax.random.split(key, 2 + 3 * BLOCKS_PER_STAGE * len(STAGES)))
        stem = {"conv": _init_kernel(next(keys), 7, channels, STAGES[0]), "norm": _init_norm(STAGES[0])}
        params: Params = {"stem": stem}
        inputs = STAGES[0]
        for name, filters in _blocks():
            params[name] = _init_block(keys, inputs, filters, has_first_norm=name != FIRST_BLOCK)
            inputs = filters
        params["norm"] = _init_norm(inputs)
        params["output"] = init_dense(next(keys), inputs, classes, jax.nn.initializers.normal(0.01))
        return params

    def conv(images: Array, kernel: Array, strides: int = 1) -> Array:
        return convolve(images, kernel, strides, "SAME", method, dtype)

    def apply(params: Params, images: Array) -> Array:
        images = norm_relu(params["stem"]["norm"], conv(images, params["stem"]["conv"], strides=2))
        images = max_pool(images, 3, strides=2, padding="SAME")
        for name, _ in _blocks():
            images = _residual_block(params[name], images, conv)
        features = norm_relu(params["norm"], images).mean(axis=(1, 2))
        return dense(params["output"], features, dtype)

    return Model(init, apply)


FIRST_BLOCK = "block_0_0"


def _blocks() -> list[tuple[str, int]]:
    return [(f"block_{s}_{b}", filters) for s, filters in enumerate(STAGES) for b in range(BLOCKS_PER_STAGE)]


def _init_block(keys: Iterator[Array], inputs: int, filters: int, has_first_norm: bool) -> Params:
    block = {
        "conv_0": _init_kernel(next(keys), 3, inputs, filters),
        "norm_1": _init_norm(filters),
        "conv_1": _init_kernel(next(keys), 3, filters, filters),
    }
    if has_first_norm:
        block["norm_0"] = _init_norm(inputs)
    if inputs != filters:
        block["shortcut"] = {"conv": _init_kernel(next(keys), 1, inputs, filters), "norm": _init_norm(filters)}
    return block


def _residual_block(params: Params, images: Array, conv: Callable[[Array, Array], Array]) -> Array:
    branch = norm_relu(params["norm_0"], images) if "norm_0" in params else images
    branch = conv(branch, params["conv_0"])
    branch = conv(norm_relu(params["norm_1"], branch), params["conv_1"])
    if "shortcut" in params:
        images = group_norm(params["shortcut"]["norm"], conv(images, params["shortcut"]["conv"]))
    return images + branch


def group_norm(params: Params, images: Array, groups: int = GROUPS) -> Array:
    """scale·(x − mean)/√(variance + ε) + bias, with mean and variance over each image and group of channels.

    Unlike batch normalisation it uses one image at a time, so no output depends on the other examples of a batch.
    """
    batch, height, width, channels = images.shape
    grouped = images.reshape(batch, height, width, groups, channels // groups)
    centred = grouped - grouped.mean(axis=(1, 2, 4), keepdims=True)
    variance = (centred * centred).mean(axis=(1, 2, 4), keepdims=True)
    normal = (centred * jax.lax.rsqrt(variance + EPSILON)).reshape(images.shape)
    return params["scale"] * normal + params["bias"]


def norm_relu(params: Params, images: Array) -> Array:
    """ReLU of the group norm."""
    return jax.nn.relu(group_norm(params, images))


def _init_norm(channels: int) -> Params:
    return {"scale": jnp.ones(channels, jnp.float32), "bias": jnp.zeros(channels, jnp.float32)}


def _init_kernel(key: Array, size: int, inputs: int, filters: int) -> Array:
    return jax.nn.initializers.he_normal()(key, (size, size, inputs, filters), jnp.float32)
