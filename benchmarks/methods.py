"""Milliseconds per round of each cell of a sweep, each in its own program, with the same cohorts.

    python benchmarks/methods.py experiments/shakespeare/paper.toml --cells '*seed=0' [--rounds 20] [--out FILE]

The records of a sweep cannot show this, because its cells share a program. Prints one JSON line per cell.
"""

import argparse
import json
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import jax
from device import measure

import fedtrue as ft
from fedtrue.runner.build import build_method, load_task, simulation_arguments
from fedtrue.runner.sweep.cells import read_sweep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--cells", default="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = []
    for cell in read_sweep(options.sweep):
        if not fnmatch(cell.name, options.cells):
            continue
        task = load_task(cell.config)
        simulation = ft.Simulation(task, build_method(cell.config, task), **simulation_arguments(cell.config, task))
        first, median, times, *_ = measure(simulation, options.rounds)
        found = {
            "method": cell.config.name(),
            "ms_per_round": round(median, 2),
            "ms_of_each_repeat": [round(each, 2) for each in times],
            "first_round_seconds": round(first, 2),
            "rounds": options.rounds,
            "lanes": str(simulation.lanes),
            "device": jax.local_devices()[0].device_kind,
            "jax": jax.__version__,
            "date": datetime.now(UTC).date().isoformat(),
        }
        lines.append(json.dumps(found))
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
