"""float64 by a scoped switch, never a global one."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax


def float64(wanted: bool = True) -> AbstractContextManager[Any]:
    """Inside this scope JAX computes in float64 (if wanted); outside nothing changes."""
    if not wanted:
        return nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # JAX before 0.8

    return enable_x64()
