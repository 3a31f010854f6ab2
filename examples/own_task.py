"""Your own federation from plain arrays: one dict of arrays per client, and the loss of one example.

python examples/own_task.py
"""

import jax.numpy as jnp
import numpy as np

import fedtrue as ft

rng = np.random.default_rng(0)


def client(examples):  # each client has its own input scale and its own true weights
    x = rng.normal(size=(examples, 5)) * rng.uniform(0.1, 3.0, size=5)
    return {"x": x, "y": x @ rng.normal(size=5)}


clients = [client(examples) for examples in (8, 20, 50, 200)]
task = ft.tasks.from_arrays(
    clients=clients,
    init=lambda key: jnp.zeros(5),
    loss=lambda params, example: (example["x"] @ params - example["y"]) ** 2,
    batch_size=10,
)

if __name__ == "__main__":
    pooled = {column: np.concatenate([client[column] for client in clients]) for column in ("x", "y")}
    minimiser = np.linalg.lstsq(pooled["x"], pooled["y"], rcond=None)[0]  # the point the federation should find
    for correction in ("none", "joint"):
        method = ft.fedopt(client=ft.client.adam(learning_rate=0.003), correction=correction)
        result = ft.train(task, method, rounds=2000, seed=0)
        error = np.linalg.norm(result.params - minimiser)
        print(f"client Adam, correction {correction:5s}: distance from the pooled least squares {error:.4f}")
