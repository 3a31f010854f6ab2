"""fedtrue compared with other simulators: same data, model, cohorts and arithmetic, one framework at a time.

    python benchmarks/peers/bench.py                        # about 12 minutes; installs the peers on first use
    python benchmarks/peers/bench.py --table                # only the tables, from benchmarks/results/peers.json
    python benchmarks/peers/bench.py --only fedtrue pfl --workloads tags --again
    python benchmarks/peers/bench.py --small                # only checks that the weights agree; writes nothing

An interrupted command continues where it stopped; `--again` repeats measurements that exist already.
A run is counted only if its weights after round 1 equal those of the bare JAX loop.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import environments
import numpy as np
from measure import CORES, MEASURED, WARM_UP
from memory import PeakMemory
from table import Record, into_page, round_seconds, tables
from workloads import FULL, KINDS

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "peers.json"
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"
TOLERANCE = 2e-6  # on weights of order 1; float32 sums in another order differ by 2e-7, another batching by 3e-3
PROCESSES = max(n for n in range(1, CORES + 1) if FULL.cohort % n == 0)  # pfl needs equal shares


class Framework(NamedTuple):
    """A runner and its environment; None: the environment of this program."""

    title: str
    environment: str | None
    command: tuple[str, ...]

    def words(self) -> list[str]:
        """The command, with the path of its program."""
        program, *rest = self.command
        bin_folder = Path(sys.executable).parent if self.environment is None else environments.folder(self.environment)
        return [str(bin_folder / program), *rest]


SEVERAL = ("torchrun", "--nproc-per-node", str(PROCESSES), "run_pfl.py", "--threads", "1")
FRAMEWORKS = {
    "fedtrue": Framework("fedtrue", None, ("python", "run_fedtrue.py")),
    "jax": Framework("bare JAX loop", None, ("python", "run_jax.py")),
    "fedjax": Framework("FedJAX", "fedjax", ("python", "run_fedjax.py")),
    "torch": Framework("bare PyTorch loop", "pfl", ("python", "run_torch.py")),
    "pfl": Framework("pfl-research", "pfl", ("python", "run_pfl.py")),
    "pfl-processes": Framework("pfl-research, one process per core", "pfl", SEVERAL),
    "flower": Framework("Flower", "flwr", ("python", "run_flower.py")),
}
REFERENCE = FRAMEWORKS["jax"]


class Mismatch(Exception):
    """A runner failed, or its weights differ from the reference."""


def main() -> int:
    arguments = _arguments()
    if arguments.table:
        return _write_tables()
    names = [name for name in FRAMEWORKS if name in arguments.only]
    if arguments.small:
        results: Record = {"runs": []}
    else:
        results = _results_so_far(arguments.rounds, names if arguments.again else [], arguments.workloads)
    options = ["--rounds", str(arguments.rounds)] + ["--small"] * arguments.small
    missing = _missing(results, names, arguments.workloads, 1 if arguments.small else arguments.passes)
    if not missing:
        print(f"{RESULTS.name} has all measurements already: --again repeats them")
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, (pass_index, workload, name) in enumerate(missing, start=1):
            label = f"{number}/{len(missing)} pass {pass_index + 1} {workload:12} {name:13}"
            try:
                reference = _reference_weights(workload, options, Path(scratch))
                run = measure(FRAMEWORKS[name], workload, options, reference, Path(scratch) / "weights.npz")
            except Mismatch as problem:
                print(f"{label} {problem}", flush=True)
                failures += 1
                continue
            speed = f"{round_seconds([run]):8.3f} s per round " if not arguments.small else ""
            print(f"{label} {speed} weights differ by {run['weights_differ_by']:.0e}", flush=True)
            results["runs"].append({"framework": name, "workload": workload, "pass": pass_index, **run})
            if not arguments.small:
                _write_whole(RESULTS, json.dumps(results, indent=1))
    if not arguments.small and results["runs"]:
        _write_tables()
    return 1 if failures else 0


def measure(framework: Framework, workload: str, options: list[str], reference: Path | None, weights: Path) -> Record:
    """One runner in its own process: its times, its peak memory and the difference of its weights."""
    command = [*framework.words(), workload, *options, "--weights", str(weights)]
    weights.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=errors, text=True)
        with PeakMemory(process.pid) as peak:
            output = process.communicate()[0]
        errors.seek(0)
        last_errors = errors.read()[-1500:]
    lines = [line for line in output.splitlines() if line.startswith('{"seconds"')]
    if process.returncode or not lines or not weights.exists():
        raise Mismatch(f"failed: {last_errors}")
    difference = largest_difference(reference, weights) if reference else 0.0
    if not difference <= TOLERANCE:  # also catches NaN
        raise Mismatch(f"computes something else: its weights after round 1 differ by {difference:.0e}")
    date = datetime.now(UTC).date().isoformat()
    return {**json.loads(lines[-1]), "peak_mb": peak.megabytes, "weights_differ_by": difference, "date": date}


def largest_difference(ours: Path, theirs: Path) -> float:
    """max |a − b| over all weights of two files; infinite if their names or shapes differ."""
    a, b = np.load(ours), np.load(theirs)
    if {name: a[name].shape for name in a} != {name: b[name].shape for name in b}:
        return float("inf")
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def _reference_weights(workload: str, options: list[str], scratch: Path) -> Path:
    path = scratch / f"{workload}.npz"
    if not path.exists():
        print(f"{workload}: computing the reference weights (bare JAX loop, round 1)", flush=True)
        measure(REFERENCE, workload, [*options, "--rounds", "1"], None, path)
    return path


def _missing(results: Record, names: list[str], workloads: list[str], passes: int) -> list[tuple[int, str, str]]:
    """(pass, workload, framework) still to run; every second pass reverses the order of the frameworks."""
    done = {(run["pass"], run["workload"], run["framework"]) for run in results["runs"]}
    wanted = [
        (pass_index, workload, name)
        for pass_index in range(passes)
        for workload in workloads
        for name in (names if pass_index % 2 == 0 else names[::-1])
    ]
    return [run for run in wanted if run not in done]


def _results_so_far(rounds: int, names_again: list[str], workloads: list[str]) -> Record:
    """The runs in peers.json of this machine and number of rounds, without those to be repeated."""
    fresh: Record = {"machine": machine(), "runs": []}
    if not RESULTS.exists():
        return fresh
    found = json.loads(RESULTS.read_text())
    if found["machine"] != fresh["machine"]:
        print(f"{RESULTS.name} is from another machine: measuring everything again")
        return fresh
    again = lambda run: run["framework"] in names_again and run["workload"] in workloads
    return {**fresh, "runs": [run for run in found["runs"] if len(run["seconds"]) == rounds and not again(run)]}


def machine() -> dict[str, Any]:
    """The machine and the Python version, on which the times depend."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": CORES,
        "memory_gb": round(memory / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _write_tables() -> int:
    if not RESULTS.exists():
        print(f"{RESULTS.name} does not exist: run bench.py without --table first")
        return 2
    text = tables(json.loads(RESULTS.read_text()), {name: f.title for name, f in FRAMEWORKS.items()})
    _write_whole(PAGE, into_page(PAGE.read_text(), text))
    print(text)
    return 0


def _write_whole(path: Path, text: str) -> None:
    """Writes the whole file or nothing."""
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text + "\n" if not text.endswith("\n") else text)
    unfinished.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(FRAMEWORKS), default=list(FRAMEWORKS))
    parser.add_argument("--workloads", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument(
        "--rounds", type=int, help=f"{WARM_UP} for warm-up; default {WARM_UP + MEASURED}, with --small 1"
    )
    parser.add_argument("--small", action="store_true", help="a few clients, one pass: only check the weights")
    parser.add_argument("--again", action="store_true", help="repeat measurements that peers.json has already")
    parser.add_argument("--table", action="store_true", help="write the tables and measure nothing")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.small else WARM_UP + MEASURED)
    if not arguments.small and arguments.rounds <= WARM_UP:
        parser.error(f"--rounds {arguments.rounds} leaves nothing to measure: {WARM_UP} are for warm-up")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
