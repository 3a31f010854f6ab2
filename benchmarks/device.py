"""Milliseconds a round on this machine's device: the paper's settings, alone and as a grid, and whether runs repeat.

    python benchmarks/device.py [words] [words_float32] [shakespeare] [grid] [parts]

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
from fedtrue.algorithm.interface import Broadcast, Client, Loss
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


def grid(dtype, lanes, rounds, cells=28):
    rates = jnp.asarray(np.geomspace(0.03, 1.0, cells), jnp.float32)
    return Simulation(ft.tasks.shakespeare(dtype=dtype), joint_adagrad, grid=rates, lanes=lanes), rounds


BY_RULE = None  # lanes as the engine chooses them
PLAN = {
    "words": [(words, jnp.bfloat16, 50, 20), (words, jnp.bfloat16, BY_RULE, 20)],
    "words_float32": [(words, jnp.float32, 50, 10)],
    "shakespeare": [(shakespeare, jnp.bfloat16, BY_RULE, 20)],
    "grid": [(grid, jnp.bfloat16, BY_RULE, 20)],
}


def parts(lanes=50, repeats=20):
    """Milliseconds of one step of words in bfloat16, cut short after the loss, after the gradient, and whole."""
    task, method = ft.tasks.synthetic_words(dtype=jnp.bfloat16), joint_adagrad(0.3)
    work = method.phases[0].work(Loss(task.loss, {"loss": (jnp.float32(0), jnp.float32(0))}))
    broadcast = Broadcast(task.init(jax.random.key(0)), ())
    rng = np.random.default_rng(0)
    batch = {"tokens": jnp.asarray(rng.integers(1, 10_000, (lanes, 16, 21))), "mask": jnp.ones((lanes, 16))}

    def milliseconds(run, *arguments):
        jax.block_until_ready(run(*arguments))
        began = time.perf_counter()
        for _ in range(repeats):
            out = run(*arguments)
        jax.block_until_ready(out)
        return round((time.perf_counter() - began) / repeats * 1e3, 3)

    states = jax.jit(
        lambda: jax.tree.map(lambda leaf: jnp.stack([leaf] * lanes), work.start(broadcast, Client(0, 1, 0.3, 1.0), ()))
    )()
    loss = jax.jit(jax.vmap(task.loss))
    gradient = jax.jit(jax.vmap(jax.grad(task.loss, has_aux=True)))
    step = jax.jit(jax.vmap(lambda state, batch: work.step(broadcast, state, batch, 0.3)))
    return {
        "what": "words parts",
        "lanes": lanes,
        "loss_ms": milliseconds(loss, states.params, batch),
        "gradient_ms": milliseconds(gradient, states.params, batch),
        "step_ms": milliseconds(step, states, batch),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*PLAN, "parts", []], default=[*PLAN, "parts"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []

    def report(row):
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for what in options.what:
        if what == "parts":
            report(parts())
            continue
        for make, dtype, lanes, rounds in PLAN[what]:
            simulation, rounds = make(dtype, lanes, rounds)
            first, median, times, infos, params = measure(simulation, rounds)
            row = {
                "what": what,
                "dtype": jnp.dtype(dtype).name,
                "lanes": simulation.plan.all_lanes,
                "lanes_by_rule": lanes is BY_RULE,
                "cells": simulation.cells,
                "first_seconds": round(first, 1),
                "ms_a_round": round(median, 2),
                "all": [round(t, 2) for t in times],
                "steps_per_round": float(infos.steps.mean()),
                "device": jax.devices()[0].device_kind,
                "jax": jax.__version__,
            }
            if what in ("words", "shakespeare"):
                again = measure(make(dtype, lanes, rounds)[0], rounds)[4]
                same = jax.tree.map(lambda a, b: bool((a == b).all()), params, again)
                row["bit_identical_twice"] = all(jax.tree.leaves(same))
            report(row)


if __name__ == "__main__":
    main()
