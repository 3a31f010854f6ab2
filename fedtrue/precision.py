"""The precision of products: by one rule for Python and the command line. float64 by a scoped switch."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
from jax.typing import DTypeLike

from fedtrue.names import look_up
from fedtrue.types import Batch, Params, PyTree

PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


def float64(wanted: bool = True) -> AbstractContextManager[Any]:
    """Inside this scope JAX computes in float64 (if wanted); outside nothing changes."""
    if not wanted:
        return nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return getattr(jax.experimental, "enable_x64")()  # noqa: B009 - JAX before 0.8; unknown to newer stubs


def default_precision() -> str:
    """bfloat16 products on accelerators, float32 on CPUs, where bfloat16 is slower. Weights and sums stay float32."""
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


def compute_dtype(dtype: DTypeLike | None = None) -> DTypeLike:
    """The type of a model's products: as given, or by the device."""
    if dtype is None:
        return PRECISIONS[default_precision()]
    return look_up("precision", PRECISIONS, dtype) if isinstance(dtype, str) else dtype


def cast_floats(tree: PyTree, dtype: DTypeLike) -> PyTree:
    """The tree with its floating-point arrays in this type; keys, integers and the rest as they are."""

    def cast(leaf: Any) -> Any:
        is_float = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if is_float else leaf

    return jax.tree.map(cast, tree)


def computed_in(dtype: DTypeLike, function: Callable[[Params, Batch], PyTree]) -> Callable[[Params, Batch], PyTree]:
    """A loss or metrics of any model, computed with weights and inputs cast to `dtype`; results are float32.

    The cast is part of the function, so its gradient is that of the float32 weights, in float32. The batch's mask is
    not cast: sums over it would round.
    """

    @wraps(function)
    def compute(params: Params, batch: Batch) -> PyTree:
        columns: Mapping[str, Any] = {name: value for name, value in batch.items() if name != "mask"}
        kept = {"mask": batch["mask"]} if "mask" in batch else {}
        return cast_floats(function(cast_floats(params, dtype), {**cast_floats(columns, dtype), **kept}), jnp.float32)

    return compute
