"""Milliseconds per round on this machine's device, for single runs and a grid, and whether two runs are bit-identical.

    python benchmarks/device.py [words] [words_float32] [shakespeare] [grid] [parts]

Uses the paper's settings. Prints one JSON line per measurement; --out also writes them to a file.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import fedtrue as ft
from fedtrue.algorithm.interface import Client, Context, Loss


def measure(simulation, rounds, repeats=3):
    """(seconds of compilation and first round, median ms per round, ms of each repeat, infos, final params)."""
    state = simulation.start()
    began = time.perf_counter()
    state, _ = simulation.run(state, 1)
    first, times = time.perf_counter() - began, []
    for _ in range(repeats):
        began = time.perf_counter()
        state, infos = simulation.run(state, rounds)
        times.append((time.perf_counter() - began) / rounds * 1e3)
    return first, float(np.median(times)), times, infos, jax.tree.map(np.asarray, state.server.params)


def joint_adagrad(rate):
    return ft.fedopt(ft.client.adagrad(rate), ft.server.adagrad(0.1, epsilon=1e-3), correction="joint")


def words(dtype, lanes, rounds):
    task = ft.tasks.synthetic_words(dtype=dtype)
    return ft.Simulation(task, joint_adagrad(0.3), lanes=lanes), rounds


def shakespeare(dtype, lanes, rounds):
    return ft.Simulation(ft.tasks.shakespeare(dtype=dtype), joint_adagrad(0.3), lanes=lanes), rounds


def grid(dtype, lanes, rounds, cells=28):
    rates = jnp.asarray(np.geomspace(0.03, 1.0, cells), jnp.float32)
    return ft.Simulation(ft.tasks.shakespeare(dtype=dtype), joint_adagrad, grid=rates, lanes=lanes), rounds


BY_RULE = None  # the engine chooses the number of lanes
PLAN = {
    "words": [(words, jnp.bfloat16, 50, 20), (words, jnp.bfloat16, BY_RULE, 20)],
    "words_float32": [(words, jnp.float32, 50, 10)],
    "shakespeare": [(shakespeare, jnp.bfloat16, BY_RULE, 20)],
    "grid": [(grid, jnp.bfloat16, BY_RULE, 20)],
}


def parts(lanes=50, repeats=20):
    """Milliseconds of one local step of words in bfloat16: the loss, the loss and its gradient, the full step."""
    task, method = ft.tasks.synthetic_words(dtype=jnp.bfloat16), joint_adagrad(0.3)
    phase, no_sums = method.phases[0], {"loss": (jnp.float32(0), jnp.float32(0))}
    work, context = phase.work(Loss(task.loss, no_sums)), Context(0, jax.random.key(0), clients=lanes, cohort=lanes)
    client = Client(index=0, steps=1, learning_rate=0.3, rate_multiplier=1.0)
    rng = np.random.default_rng(0)
    batch = {"tokens": jnp.asarray(rng.integers(1, 10_000, (lanes, 16, 21))), "mask": jnp.ones((lanes, 16))}

    def milliseconds(run, *arguments):
        jax.block_until_ready(run(*arguments))
        began = time.perf_counter()
        for _ in range(repeats):
            out = run(*arguments)
        jax.block_until_ready(out)
        return round((time.perf_counter() - began) / repeats * 1e3, 3)

    broadcast = phase.broadcast(method.init(task.init(jax.random.key(0))), context)
    start = lambda: work.start(broadcast, client, work.init_memory(broadcast, client.index))
    states = jax.jit(lambda: jax.tree.map(lambda leaf: jnp.stack([leaf] * lanes), start()))()
    loss = jax.jit(jax.vmap(task.loss))
    gradient = jax.jit(jax.vmap(jax.grad(task.loss, has_aux=True)))
    step = jax.jit(jax.vmap(lambda state, batch: work.step(broadcast, state, batch, 0.3)))
    return {
        "benchmark": "words parts",
        "lanes": lanes,
        "loss_ms": milliseconds(loss, states.params, batch),
        "gradient_ms": milliseconds(gradient, states.params, batch),
        "step_ms": milliseconds(step, states, batch),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="*", choices=[*PLAN, "parts", []], default=[*PLAN, "parts"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []

    def report(row):
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for name in options.benchmarks:
        if name == "parts":
            report(parts())
            continue
        for make, dtype, lanes, rounds in PLAN[name]:
            simulation, rounds = make(dtype, lanes, rounds)
            first, median, times, infos, params = measure(simulation, rounds)
            steps_of_clients = np.asarray(simulation.federation.steps)
            row = {
                "benchmark": name,
                "dtype": jnp.dtype(dtype).name,
                "lanes": simulation.plan.all_lanes,
                "lanes_by_rule": lanes is BY_RULE,
                "cells": simulation.cells,
                "first_round_seconds": round(first, 1),
                "ms_per_round": round(median, 2),
                "ms_of_each_repeat": [round(t, 2) for t in times],
                "longest_client_steps": float(steps_of_clients[infos.cohort].max(axis=-1).mean()),
                "steps_per_round": float(infos.steps.mean()),
                "device": jax.devices()[0].device_kind,
                "jax": jax.__version__,
            }
            if name in ("words", "shakespeare"):
                again = measure(make(dtype, lanes, rounds)[0], rounds)[4]
                same = jax.tree.map(lambda a, b: bool((a == b).all()), params, again)
                row["bit_identical_twice"] = all(jax.tree.leaves(same))
            report(row)


if __name__ == "__main__":
    main()
