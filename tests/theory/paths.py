"""Runs of a method on a quadratic task, as the theory's tests look at them."""

import jax
import jax.numpy as jnp
import numpy as np

from fedtrue.precision import float64
from fedtrue.theory import round_operator


def server_path(task, method, rounds, local_steps, seeds=(0,)):
    """The server's weights after 0, 1, … rounds, one path per seed."""
    with float64():
        operate = round_operator(task, method, local_steps)

        def path(seed):
            def body(state, round_index):
                state = operate(state, seed, round_index)
                return state, state.params

            return jax.lax.scan(body, method.init(jnp.asarray(task.start)), jnp.arange(rounds))[1]

        later = np.asarray(jax.jit(jax.vmap(path))(jnp.asarray(seeds, jnp.uint32)))
    return np.concatenate([np.broadcast_to(task.start, (len(later), 1, task.start.size)), later], axis=1)
