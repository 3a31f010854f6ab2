"""Data that stays on the host: does the host prepare the next window while the device computes?

    python benchmarks/window.py [--task synthetic_words] [--dispatches 6]

Profiles a few dispatches: the times of the dispatch, of the start and end of the host's preparation of the next window,
and of the device's results. For comparison, the same rounds with all data on the device. Prints the timeline and writes
benchmarks/results/window-DEVICE.json.
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import jax
import numpy as np

import fedtrue as ft
from fedtrue.runner.build import load_task
from fedtrue.runner.settings import RunConfig

RESULTS = Path(__file__).resolve().parent / "results"


def timeline(simulation, rounds, dispatches):
    """One row per dispatch, in seconds since the first: dispatched, host begins, host ends, results ready."""
    clock, rows, prepare = time.perf_counter, [], simulation._prepare

    def watched(first_round):
        rows[-1]["host_begins"] = clock()
        prepare(first_round)
        rows[-1]["host_ends"] = clock()

    state, _ = simulation.run(simulation.start(), rounds)  # compiles
    simulation._prepare = watched
    began = clock()
    for _ in range(dispatches):
        rows.append({"dispatched": clock()})
        state, _ = simulation.run(state, rounds)
        jax.block_until_ready(state)
        rows[-1]["results"] = clock()
    return [{name: round(at - began, 4) for name, at in row.items()} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="synthetic_words")
    parser.add_argument("--dispatches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2, help="per dispatch")
    options = parser.parse_args()
    task = load_task(RunConfig(options.task))
    method = ft.fedopt(ft.client.adagrad(0.1), ft.server.sgd(1.0))
    found = {}
    for name, on_device in (("windows", False), ("all on the device", True)):
        simulation = ft.Simulation(task, method, data_on_device=on_device)
        found[name] = timeline(simulation, min(options.rounds, simulation.rounds_per_dispatch), options.dispatches)
    for row in found["windows"]:
        host, inside = row["host_ends"] - row["host_begins"], min(row["host_ends"], row["results"]) - row["host_begins"]
        device = f"device {row['dispatched']:8.3f} to {row['results']:8.3f} s"
        print(f"{device}; host prepares {host:6.3f} s, {inside:6.3f} of it while the device computes")
    seconds = {
        name: float(np.median([row["results"] - row["dispatched"] for row in rows])) for name, rows in found.items()
    }
    host = float(np.median([row["host_ends"] - row["host_begins"] for row in found["windows"]]))
    device = jax.local_devices()[0]
    record = {
        "command": "python benchmarks/window.py " + " ".join(sys.argv[1:]),
        "task": options.task,
        "seconds_per_dispatch": {name: round(value, 4) for name, value in seconds.items()},
        "host_seconds": round(host, 4),
        "timeline": found["windows"],
        "device": f"{jax.device_count()} × {device.device_kind}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps({name: value for name, value in record.items() if name != "timeline"}))
    (RESULTS / f"window-{device.platform}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
