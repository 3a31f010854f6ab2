"""Where the noise of differential privacy comes from in a deployment: not from the seed, which all clients know."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.engine.round import phase_key


def noise_key(secret: bool, seed: Any, round_index: Any, phase: int) -> jax.Array:
    """The key of a phase's randomness: new random bits of the operating system, or that of the simulation."""
    if not secret:
        return phase_key(seed, round_index, phase)
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(os.urandom(8), np.uint32)), impl="threefry2x32")
