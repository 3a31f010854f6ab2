"""One sweep compared with the same runs one after another: 28 cells of logistic regression on MNIST.

    python benchmarks/sweep.py [--rounds 50] [--cells 28]

Times whole commands: start-up, loading, compilation, training, evaluation and writing. Writes
benchmarks/results/sweep-DEVICE.json. Needs the MNIST files (`fedtrue data get mnist`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import jax

RATES = {"client": [0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0], "server": [0.03, 0.1, 0.3, 1.0]}
RESULTS = Path(__file__).resolve().parent / "results"


def timed(*words: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "fedtrue", *words, "--json"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--cells", type=int, default=28)
    options = parser.parse_args()
    cells = [(c, s) for c in RATES["client"] for s in RATES["server"]][: options.cells]
    common = f'task = "mnist"\nrounds = {options.rounds}\nclient = "adagrad"\nserver = "sgd"\ncorrection = "joint"\n'
    listed = [f"{{ client.learning_rate = {c}, server.learning_rate = {s} }}" for c, s in cells]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.toml")
        file.write_text(common + "[sweep]\ncells = [" + ", ".join(listed) + "]\n")
        together = timed("sweep", str(file), "--out", f"{folder}/cells")
        run = ["run", "mnist", "--rounds", str(options.rounds), "--client", "adagrad"]
        alone = [
            timed(*run, "--client-rate", str(c), "--server-rate", str(s), "--out", f"{folder}/{place}")
            for place, (c, s) in enumerate(cells)
        ]
    device = jax.local_devices()[0]
    found = {
        "command": "python benchmarks/sweep.py " + " ".join(sys.argv[1:]),
        "cells": len(cells),
        "rounds": options.rounds,
        "together_seconds": round(together, 1),
        "alone_seconds": round(sum(alone), 1),
        "ratio": round(together / sum(alone), 3),
        "each_alone": [round(seconds, 1) for seconds in alone],
        "device": f"{jax.device_count()} × {device.device_kind}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(found, indent=1))
    (RESULTS / f"sweep-{device.platform}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
