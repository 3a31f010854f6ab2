"""Trains several sweeps on this machine, a few processes at a time and for a limited time; repeated, it goes on.

    python experiments/train.py FILE[:CELLS] … --processes 4 --seconds 540 -o experiments/records
    python experiments/train.py 'experiments/mnist/moments.toml' 'experiments/shakespeare/trial.toml:*seed=1'

Each FILE:CELLS is one `fedtrue sweep FILE --cells CELLS`; they start in this order. When the time is over all are told
to stop: they save and end. The runs are in the folder --runs, with what the processes print (`log`) and compiled
programs; those that have ended are packed into the folder --out, one archive per sweep. On an NVIDIA GPU the processes
share it through the Multi-Process Service.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FEDTRUE = (sys.executable, "-m", "fedtrue")
MEMORY = 0.9  # of a GPU, shared by the processes


def folder_of(file: str, runs: Path) -> Path:
    """The folder of a sweep's cells: runs/shakespeare-trial for experiments/shakespeare/trial.toml."""
    return runs / f"{Path(file).resolve().parent.name}-{Path(file).stem}"


def command(job: str, runs: Path) -> list[str]:
    file, _, cells = job.partition(":")
    return [*FEDTRUE, "sweep", file, "--cells", cells or "*", "--out", str(folder_of(file, runs))]


def environment(processes: int, runs: Path) -> dict[str, str]:
    """Of the processes; starts the service through which they share an NVIDIA GPU."""
    settings = {"JAX_COMPILATION_CACHE_DIR": str(runs.resolve() / "compiled")}
    if shutil.which("nvidia-cuda-mps-control"):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)  # it says so if it runs already
        settings["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{MEMORY / processes:.3f}"
    return {**os.environ, **settings}


def train(jobs: Sequence[str], runs: Path, processes: int, seconds: float) -> dict[str, int]:
    """Job → exit code, of the jobs that were started."""
    runs.mkdir(parents=True, exist_ok=True)
    waiting, running, codes = list(jobs), dict[str, subprocess.Popen](), dict[str, int]()
    deadline, env, stopped = time.monotonic() + seconds, environment(processes, runs), False
    with (runs / "log").open("a") as log:
        while running or (waiting and not stopped):
            while waiting and len(running) < processes and not stopped:
                job = waiting.pop(0)
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                running[job] = subprocess.Popen(command(job, runs), env=env, **streams)
            if not stopped and time.monotonic() > deadline:
                stopped = True
                for process in running.values():
                    process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            codes |= {job: process.returncode for job, process in running.items() if process.poll() is not None}
            running = {job: process for job, process in running.items() if job not in codes}
    return codes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", metavar="FILE[:CELLS]")
    parser.add_argument("--processes", type=int, default=1, metavar="INT")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="FLOAT")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR")
    options = parser.parse_args()
    codes = train(options.jobs, options.runs, options.processes, options.seconds)
    states = {None: "not started", 0: "ended"}
    for job in options.jobs:
        code = codes.get(job)
        print(f"{job}: {states.get(code, f'exit code {code}, see {options.runs}/log')}")
    if options.out:
        for folder in dict.fromkeys(folder_of(job.partition(":")[0], options.runs) for job in options.jobs):
            subprocess.run([*FEDTRUE, "pack", folder, "--only-ended", "-o", options.out], check=False)
    return int(any(codes.get(job) != 0 for job in options.jobs))


if __name__ == "__main__":
    sys.exit(main())
