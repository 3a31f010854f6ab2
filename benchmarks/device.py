"""Milliseconds a round on this machine's device: the paper's settings, alone and as a grid, and whether runs repeat.

    python benchmarks/device.py [words] [shakespeare] [grid]

Prints one JSON line a measurement; with --out they are also written to a file.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import fedtrue as ft
from fedtrue.engine.simulation import Simulation


def measure(simulation, rounds, repeats=3):
    """(compilation and first round in seconds, median milliseconds a round, the params at the end)."""
    state = simulation.start()
    began = time.perf_counter()
    state, _ = simulation.run(state, 0, 1)
    first, times, done = time.perf_counter() - began, [], 1
    for _ in range(repeats):
        began = time.perf_counter()
        state, infos = simulation.run(state, done, rounds)
        times.append((time.perf_counter() - began) / rounds * 1e3)
        done += rounds
    return first, float(np.median(times)), times, infos, jax.tree.map(np.asarray, state.server.params)


def joint_adagrad(rate):
    return ft.fedopt(ft.client.adagrad(rate), ft.server.adagrad(0.1, epsilon=1e-3), correction="joint")


def words(dtype, lanes, rounds):
    task = ft.tasks.synthetic_words(dtype=dtype)
    return Simulation(task, joint_adagrad(0.3), lanes=lanes), rounds


def shakespeare(dtype, lanes, rounds):
    return Simulation(ft.tasks.shakespeare(dtype=dtype), joint_adagrad(0.3), lanes=lanes), rounds


def grid(dtype, cells, rounds):
    rates = jnp.asarray(np.geomspace(0.03, 1.0, cells), jnp.float32)
    return Simulation(ft.tasks.shakespeare(dtype=dtype), joint_adagrad, grid=rates), rounds


PLAN = {
    "words": [(words, jnp.bfloat16, 50, 20), (words, jnp.bfloat16, 25, 20), (words, jnp.float32, 50, 10)],
    "shakespeare": [
        (shakespeare, jnp.bfloat16, 10, 20),
        (shakespeare, jnp.bfloat16, 5, 20),
        (shakespeare, jnp.float32, 10, 20),
    ],
    "grid": [(grid, jnp.bfloat16, 28, 20)],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*PLAN, []], default=list(PLAN))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for what in options.what:
        for make, dtype, lanes, rounds in PLAN[what]:
            simulation, rounds = make(dtype, lanes, rounds)
            first, median, times, infos, params = measure(simulation, rounds)
            row = {
                "what": what,
                "dtype": jnp.dtype(dtype).name,
                "lanes_or_cells": lanes,
                "first_seconds": round(first, 1),
                "ms_a_round": round(median, 2),
                "all": [round(t, 2) for t in times],
                "longest_client_steps": float(infos.steps.max(axis=-1).mean()),
                "steps_a_round": float(infos.steps.sum(axis=-1).mean()),
                "device": jax.devices()[0].device_kind,
                "jax": jax.__version__,
            }
            if what != "grid":
                again = measure(make(dtype, lanes, rounds)[0], rounds)[4]
                same = jax.tree.map(lambda a, b: bool((a == b).all()), params, again)
                row["bit_identical_twice"] = all(jax.tree.leaves(same))
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.out:
        options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
