"""What a checkpoint costs when clients keep their optimizer's state: 10,000 of them, `inherit`, Adagrad, 10 a round.

    python benchmarks/checkpoints.py

Logistic regression of 8,010 weights on made-up data. After 10, 100 and 500 rounds: how many clients have taken part,
the checkpoint's bytes and seconds beside those of the whole memory, and the seconds to load it again. Prints one JSON
line each and writes benchmarks/results/checkpoints.json.
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
from fedtrue.engine.simulation import Simulation
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


def save(folder, done, state, clients):
    """As a run does it."""
    checkpoint.save(folder, done, state._replace(memory=checkpoint.rows_of(state.memory, clients)), clients)


def measure(folder, start, state, done, clients):
    """What a checkpoint of this state costs, of those who took part and of everyone."""
    everyone = np.arange(CLIENTS)
    save(folder, done, state, everyone)  # compiles the gather
    whole = median_seconds(save, folder, done, state, everyone)
    seconds = median_seconds(save, folder, done, state, clients)
    loaded = jax.tree.map(np.array_equal, checkpoint.restored(checkpoint.newest(folder, print), start), state)
    assert jax.tree.all(loaded), "a checkpoint that is not the state"
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
    simulation = Simulation(task(), method, lanes=1)
    start, seen, rows = jax.tree.map(np.array, simulation.start()), np.zeros(CLIENTS, bool), []
    state, done = simulation.start(), 0
    with tempfile.TemporaryDirectory() as temporary:
        for rounds in (10, 100, 500):
            state, info = simulation.run(state, done, rounds - done)
            done, seen[info.cohort] = rounds, True
            rows.append(measure(Path(temporary) / "checkpoints", start, state, done, np.flatnonzero(seen)))
            print(json.dumps(rows[-1]), flush=True)
    facts = {"device": jax.devices()[0].device_kind, "cores": os.cpu_count(), "jax": jax.__version__}
    RESULTS.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
