"""A method from parts: the client learning rate is a function of the round, the server an optax transformation.

python examples/own_method.py
"""

import jax.numpy as jnp
import numpy as np
import optax

import fedtrue as ft


def decayed_joint_yogi(learning_rate, halve_every):
    """Client Yogi with a decaying learning rate and the joint correction; Lion on the server."""
    halving = lambda round_index: learning_rate * 0.5 ** jnp.floor(round_index / halve_every)
    return ft.fedopt(client=ft.client.yogi(halving), server=optax.lion(0.02), correction="joint")


if __name__ == "__main__":
    task = ft.tasks.quadratic()
    result = ft.train(task, decayed_joint_yogi(0.1, halve_every=200), rounds=1000, local_steps=[2, 30])
    print(f"distance from the minimiser: {np.linalg.norm(result.params - task.minimiser):.4f}")
