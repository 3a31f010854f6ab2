"""The generated PyTorch app under Flower's simulation engine, beside fedtrue's simulation of the same model and data.

    python benchmarks/flower_simulation.py --rounds 20 > benchmarks/results/flower-simulation.json

Needs `pip install 'flwr[simulation]'` and an idle machine. Seconds per round are medians over the rounds after the
first, as the run folders record them; both write these folders.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

import fedtrue as ft
from fedtrue.flower.project import new_project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        seconds = {"torch, Flower": in_flower(Path(folder), rounds), "jax, fedtrue": in_fedtrue(Path(folder), rounds)}
    ratio = seconds["torch, Flower"] / seconds["jax, fedtrue"]
    print(json.dumps({"rounds": rounds, "seconds_per_round": seconds, "ratio": ratio}, indent=1))


def in_flower(folder: Path, rounds: int) -> float:
    """By the command of the app's own README."""
    app, out = folder / "torch-app", folder / "torch-run"
    new_project(app, "torch")
    environment = {**os.environ, "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["flwr", "run", str(app), "--stream", "--federation-config", "num-supernodes=3"]
    command += ["--run-config", f"rounds={rounds}", "--run-config", f"out='{out}'"]
    try:
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
    finally:
        end_superlink(f"FLWR_HOME={folder / 'home'}")
    return median_seconds(out)


def end_superlink(entry: str) -> None:
    """`flwr run` starts a local SuperLink, which stays: ends the processes that have this in their environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if entry.encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGTERM)


def in_fedtrue(folder: Path, rounds: int) -> float:
    """The other flavour of the generated app has the same model, data and batches per round, as a fedtrue task."""
    app, out = folder / "jax-app", folder / "jax-run"
    new_project(app, "jax")
    sys.path.insert(0, str(app))
    from task import METHOD, client_data, make_task

    ft.train(make_task([client_data(i) for i in range(3)]), METHOD, rounds=rounds, evaluate_every=1, out=out)
    return median_seconds(out)


def median_seconds(run: Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return float(np.median([line["seconds"] for line in lines[1:]]))


if __name__ == "__main__":
    main()
