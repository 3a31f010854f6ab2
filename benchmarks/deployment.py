"""Simulation and deployment side by side: the largest difference of their weights, and the bytes of the messages.

    python benchmarks/deployment.py > benchmarks/results/deployment.json

Strategy and client apps are those of a real federation, on `ft.flower.LocalGrid`; the network itself changes no number.
"""

import json

import numpy as np

import fedtrue as ft

WEIGHTS, ROUNDS, COHORT = 10_000, 20, 2
METHODS = {
    "FedAvg": ft.methods.fedavg(0.02),
    "FedProx": ft.methods.fedprox(ft.client.sgd(0.02), mu=0.1),
    "SCAFFOLD": ft.methods.scaffold(ft.client.sgd(0.02)),
    "Adam, `none`": ft.fedopt(ft.client.adam(0.01), correction="none"),
    "Adam, `local`": ft.fedopt(ft.client.adam(0.01), ft.server.sgd(0.1), correction="local"),
    "Adam, `joint`": ft.fedopt(ft.client.adam(0.01), correction="joint"),
    "Adam, `local(report=mean_gradient)`": ft.fedopt(
        ft.client.adam(0.01), ft.server.sgd(0.1), correction={"name": "local", "report": "mean_gradient"}
    ),
    "Adam, `moments`": ft.fedopt(ft.client.adam(0.01), ft.server.sgd(0.01), correction="moments"),
}


def task() -> ft.Task:
    """Three unlike clients with 10, 20 and 40 examples."""
    rng = np.random.default_rng(0)
    clients = [{"x": rng.normal(i, 1, (10 * 2**i, WEIGHTS)).astype(np.float32)} for i in range(3)]
    return ft.tasks.from_arrays(
        clients,
        init=lambda key: {"w": np.zeros(WEIGHTS, np.float32)},
        loss=lambda params, example: ((params["w"] - example["x"]) ** 2).sum(),
        batch_size=5,
        local_epochs=2,
        cohort=COHORT,
    )


def measured(method: ft.Method) -> dict[str, float]:
    """Of one method."""
    own = task()
    strategy = ft.flower.Strategy(method, own)
    strategy.start(ft.flower.LocalGrid(ft.flower.client_app(own, method), nodes=3), num_rounds=ROUNDS)
    simulated = ft.train(own, method, rounds=ROUNDS).params["w"]
    per_client = lambda name: float(strategy.result.history[name].mean() / COHORT)
    return {
        "largest_weight": float(np.abs(simulated).max()),
        "largest_difference": float(np.abs(strategy.result.params["w"] - simulated).max()),
        "bytes_up": per_client("bytes_up"),
        "bytes_down": per_client("bytes_down"),
    }


if __name__ == "__main__":
    rows = {name: measured(method) for name, method in METHODS.items()}
    print(json.dumps({"weights": WEIGHTS, "rounds": ROUNDS, "methods": rows}, indent=1))
