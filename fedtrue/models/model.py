"""What a model is here: two pure functions, and the matrix product all of them share."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike

Params = dict[str, Any]


class Model(NamedTuple):
    """`init(key) → params`, a dict of float32 arrays, and `apply(params, inputs) → outputs` in float32."""

    init: Callable[[Array], Params]
    apply: Callable[[Params, Any], Array]


def accumulator(dtype: DTypeLike) -> jnp.dtype:
    """The dtype sums are kept in: float32, or float64 when the products are."""
    return jnp.promote_types(dtype, jnp.float32)


def unrounded(dtype: DTypeLike) -> lax.Precision | None:
    """The precision at which factors of this dtype enter a product as they are.

    A GPU's default rounds float32 factors to TF32's 10 bits: an error of 3e-4 in place of 2e-7.
    """
    return lax.Precision.HIGHEST if dtype == jnp.float32 else None


def matmul(a: Array, b: Array, result: DTypeLike | None = None) -> Array:
    """a·b of unrounded factors, summed in float32 or wider, returned in `result`."""
    result = accumulator(a.dtype) if result is None else result
    return jnp.matmul(a, b, precision=unrounded(a.dtype), preferred_element_type=result)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def product(inputs: Array, kernel: Array, dtype: DTypeLike = jnp.float32, result: DTypeLike | None = None) -> Array:
    """inputs (…, m) · kernel (m, n), multiplied in `dtype`, accumulated in float32, returned in `result`.

    With G the gradient of the result:  ∂inputs = G·kernelᵀ,  ∂kernel = Σ inputsᵀ·G.

    The backward pass is written out because JAX would multiply the float32 G with the bfloat16 factor in float32;
    here G is cast first, and ∂kernel leaves the accumulator as float32 without a rounding to bfloat16 in between.
    """
    return matmul(inputs.astype(dtype), kernel.astype(dtype), result)


def _product_forward(inputs, kernel, dtype, result):
    return product(inputs, kernel, dtype, result), (inputs, kernel)


def _product_backward(dtype, _result, kept, gradient):
    inputs, kernel = kept
    gradient = gradient.astype(dtype)
    by_inputs = matmul(gradient, kernel.astype(dtype).T)
    rows = inputs.astype(dtype).reshape(-1, inputs.shape[-1])
    columns = gradient.reshape(-1, gradient.shape[-1])
    by_kernel = matmul(rows.T, columns)
    return by_inputs.astype(inputs.dtype), by_kernel.astype(kernel.dtype)


product.defvjp(_product_forward, _product_backward)


def dense(params: Params, inputs: Array, dtype: DTypeLike = jnp.float32) -> Array:
    """inputs · kernel + bias, in float32."""
    return product(inputs, params["kernel"], dtype) + params["bias"]


glorot_uniform = jax.nn.initializers.glorot_uniform()  # ±√(6/(inputs + outputs)): Keras' default


def init_dense(key: Array, inputs: int, outputs: int, init_kernel: Initializer = glorot_uniform) -> Params:
    """A kernel (inputs, outputs) and bias 0."""
    return {"kernel": init_kernel(key, (inputs, outputs), jnp.float32), "bias": jnp.zeros(outputs, jnp.float32)}


def count_weights(params: Params) -> int:
    """How many numbers a client sends."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
