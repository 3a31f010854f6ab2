"""Does bfloat16 cost accuracy? Shakespeare with bfloat16 and float32 products, client and server Adagrad, joint.

    python benchmarks/precision.py [--rounds 300] [--seeds 3] [--out FILE]

Prints one JSON line per run with the final test accuracy.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import fedtrue as ft


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        for dtype in (jnp.bfloat16, jnp.float32):
            task = ft.tasks.shakespeare(dtype=dtype)
            rates = task.recommended["adagrad", "adagrad", "joint"]
            method = ft.fedopt(
                ft.client.adagrad(rates.client), ft.server.adagrad(rates.server, epsilon=rates.server_epsilon)
            )
            began = time.perf_counter()
            result = ft.train(task, method, rounds=options.rounds, seed=seed)
            row = {
                "dtype": jnp.dtype(dtype).name,
                "seed": seed,
                "rounds": options.rounds,
                "test_accuracy": round(100 * result.evaluations[-1]["metrics"]["test"]["accuracy"], 3),
                "seconds": round(time.perf_counter() - began, 1),
                "device": jax.devices()[0].device_kind,
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
            if options.out:
                options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
