"""A model is two pure functions; and the matrix product that all models share."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike

from fedtrue.types import PyTree

Params = dict[str, Any]  # layer or weight → its arrays, nested


class Model(NamedTuple):
    """`init(key) → params`, a dict of float32 arrays, and `apply(params, inputs) → outputs` in float32.

    >>> from fedtrue.models import logistic_regression
    >>> model = logistic_regression(features=3, classes=2)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((5, 3))).shape
    (5, 2)
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]


def accumulation_dtype(dtype: DTypeLike) -> jnp.dtype:
    """The dtype of sums over products in `dtype`: at least float32."""
    return jnp.promote_types(dtype, jnp.float32)


def full_precision(dtype: DTypeLike) -> lax.Precision | None:
    """The precision argument with which factors of this dtype are multiplied without rounding them first.

    A GPU's default rounds float32 factors to TF32's 10 bits: an error of 3e-4 instead of 2e-7.
    """
    return lax.Precision.HIGHEST if dtype == jnp.float32 else None


def matmul(a: Array, b: Array, result: DTypeLike | None = None) -> Array:
    """a·b without rounding the factors, summed in float32 or wider, returned as dtype `result`."""
    result = accumulation_dtype(a.dtype) if result is None else result
    return jnp.matmul(a, b, precision=full_precision(a.dtype), preferred_element_type=result)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def product(inputs: Array, kernel: Array, dtype: DTypeLike = jnp.float32, result: DTypeLike | None = None) -> Array:
    """inputs (…, m) · kernel (m, n), multiplied in `dtype`, accumulated in float32, returned as dtype `result`.

    With G the gradient of the result:  ∂inputs = G·kernelᵀ,  ∂kernel = Σ inputsᵀ·G.

    The backward pass is written out because JAX would multiply the float32 G by the bfloat16 factor in float32. Here G
    is cast first, and ∂kernel is returned in float32 without rounding to bfloat16 in between.
    """
    return matmul(inputs.astype(dtype), kernel.astype(dtype), result)


def _product_forward(inputs, kernel, dtype, result):
    return product(inputs, kernel, dtype, result), (inputs, kernel)


def _product_backward(dtype, _result, residuals, gradient):
    inputs, kernel = residuals
    gradient = gradient.astype(dtype)
    inputs_gradient = matmul(gradient, kernel.astype(dtype).T)
    rows = inputs.astype(dtype).reshape(-1, inputs.shape[-1])
    columns = gradient.reshape(-1, gradient.shape[-1])
    kernel_gradient = matmul(rows.T, columns)
    return inputs_gradient.astype(inputs.dtype), kernel_gradient.astype(kernel.dtype)


product.defvjp(_product_forward, _product_backward)


def dense(params: Params, inputs: Array, dtype: DTypeLike = jnp.float32) -> Array:
    """inputs · kernel + bias, in float32."""
    return product(inputs, params["kernel"], dtype) + params["bias"]


glorot_uniform = jax.nn.initializers.glorot_uniform()  # ±√(6/(inputs + outputs)), the default of Keras


def init_dense(key: Array, inputs: int, outputs: int, init_kernel: Initializer = glorot_uniform) -> Params:
    """A kernel (inputs, outputs) and bias 0."""
    return {"kernel": init_kernel(key, (inputs, outputs), jnp.float32), "bias": jnp.zeros(outputs, jnp.float32)}


def count_weights(params: PyTree) -> int:
    """The number of weights: the numbers that a client sends."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
