"""`make demo`: three methods on real plays, with the same initial weights and cohorts; prints a table, draws a picture.

python examples/demo.py [--rounds 20] [--seed 0] [--out demo]
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from demo_task import SEQUENCES, task

import fedtrue as ft
from fedtrue.commands.answer import printer, table
from fedtrue.reports.curves import draw_curves

# Learning rates by the lowest mean validation loss of three seeds after 20 rounds, for each method among as many pairs:
# 5 client × 3 server learning rates (experiments/demo/tuning.toml).
METHODS = {
    "client SGD": ft.fedopt(ft.client.sgd(1.0), ft.server.sgd(1.0), correction="none"),
    "client Adam": ft.fedopt(ft.client.adam(0.01), ft.server.sgd(1.0), correction="none"),
    "client Adam + joint correction": ft.fedopt(ft.client.adam(0.01), ft.server.sgd(1.0), correction="joint"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    options = parser.parse_args()
    ft.use_all_cores()  # clients train in parallel, one per core

    plays = task()
    print(f"data: {plays.source}\n{len(plays.train):,} roles, at most {SEQUENCES} sequences of 80 characters each")
    rows, curves = [], {}
    for name, method in METHODS.items():
        start = time.perf_counter()
        print(f"{name} …")
        result = ft.train(plays, method, rounds=options.rounds, seed=options.seed, progress=True)
        metrics = result.summary["final"]["test"]
        rows.append([name, metrics["loss"], 100 * metrics["accuracy"], time.perf_counter() - start])
        curves[name] = (np.arange(1, options.rounds + 1), result.history["loss"])
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "curves.png"
    draw_curves(
        curves, picture, title="Real plays, same initial weights and cohorts", y_label="train loss (nats per character)"
    )
    title = f"Next character after {options.rounds} rounds of {plays.cohort} roles"
    columns = ["method", "final test loss", "final test accuracy (%)", "seconds"]
    printer(table(title, columns, rows), f"picture: {picture}")()


if __name__ == "__main__":
    sys.exit(main())
