"""The precision of products: by one rule for Python and the command line. float64 by a scoped switch."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
from jax.typing import DTypeLike

from fedtrue.names import look_up

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
