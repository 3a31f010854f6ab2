"""The cost of a checkpoint when clients keep their optimizer state: 10,000 clients, `inherit`, Adagrad, 10 per round.

    python benchmarks/checkpoints.py

Logistic regression with 8,010 weights on synthetic data. Measured after 10, 100 and 500 rounds: the number of clients
that have taken part, the size and time of the checkpoint, the same for the memory of all clients, and the time to load
the checkpoint. Prints one JSON line per measurement and writes benchmarks/results/checkpoints.json.
"""

import json
import os
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import fedtrue as ft
from fedtrue.runner import checkpoint

CLIENTS, FEATURES, CLASSES, COHORT, REPEATS = 10_000, 800, 10, 10, 3
RESULTS = Path(__file__).parent / "results" / "checkpoints.json"


def task():
    random = np.random.default_rng(0)
    clients = [
        {"x": random.normal(size=(4, FEATURES)).astype(np.float32), "y": random.integers(0, CLASSES, 4)}
        for _ in range(CLIENTS)
    ]

    def loss(params, example):
        logits = example["x"] @ params["w"] + params["b"]
        return jax.nn.logsumexp(logits) - logits[example["y"]]

    init = lambda key: {"w": jnp.zeros((FEATURES, CLASSES)), "b": jnp.zeros(CLASSES)}
    return ft.tasks.from_arrays(clients, init, loss, batch_size=4, cohort=COHORT)


def median_seconds(work, *arguments):
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work(*arguments)
        times.append(time.perf_counter() - began)
    return round(float(np.median(times)), 4)


def save(folder, done, simulation, state, clients):
    """The same two calls that a run makes."""
    checkpoint.save(folder, done, simulation.on_host(state, clients), clients)


def measure(folder, simulation, state, done, clients):
    """The cost of a checkpoint of this state: with the clients that took part, and with all clients."""
    everyone = np.arange(CLIENTS)
    save(folder, done, simulation, state, everyone)  # compiles the gather
    whole = median_seconds(save, folder, done, simulation, state, everyone)
    seconds = median_seconds(save, folder, done, simulation, state, clients)
    saved = simulation.on_host(state, clients)
    loaded = jax.tree.map(np.array_equal, checkpoint.restored(checkpoint.newest(folder, print), saved), saved)
    assert jax.tree.all(loaded), "the loaded checkpoint differs from the state"
    return {
        "rounds": done,
        "clients": len(clients),
        "megabytes": round(sum(path.stat().st_size for path in folder.glob(f"{done:08d}.*")) / 1e6, 1),
        "seconds": seconds,
        "load_seconds": median_seconds(checkpoint.newest, folder, print),
        "whole_memory_megabytes": round(sum(leaf.nbytes for leaf in jax.tree.leaves(state.memory)) / 1e6, 1),
        "whole_memory_seconds": whole,
    }


def main():
    method = ft.fedopt(ft.client.adagrad(0.1), client_state="inherit")
    simulation = ft.Simulation(task(), method, lanes=1)
    seen, rows = np.zeros(CLIENTS, bool), []
    state, done = simulation.start(), 0
    with tempfile.TemporaryDirectory() as temporary:
        for rounds in (10, 100, 500):
            state, info = simulation.run(state, rounds - done)
            done, seen[info.cohort] = rounds, True
            rows.append(measure(Path(temporary) / "checkpoints", simulation, state, done, np.flatnonzero(seen)))
            print(json.dumps(rows[-1]), flush=True)
    facts = {"device": jax.devices()[0].device_kind, "cores": os.cpu_count(), "jax": jax.__version__}
    RESULTS.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
