"""float64 by a scoped switch, never a global one."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.experimental


def float64(wanted: bool = True) -> AbstractContextManager[Any]:
    """Inside this scope JAX computes in float64 (if wanted); outside nothing changes."""
    if not wanted:
        return nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return getattr(jax.experimental, "enable_x64")()  # noqa: B009 - JAX before 0.8; unknown to newer stubs
