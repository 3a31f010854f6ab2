"""Shared by all runners: arguments, clock, and the JSON line with the results."""

import argparse
import json
import os
import time
from importlib.metadata import version

import numpy as np
from workloads import FULL, KINDS, SMALL, Arrays, Workload

WARM_UP, MEASURED = 2, 8  # rounds
CORES = len(os.sched_getaffinity(0))


class Run:
    """A workload, the number of rounds, and the time of each.

    `lap()` ends a round and `resume()` begins the next; the time between them is not counted.
    """

    def __init__(self, description: str | None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("workload", choices=list(KINDS))
        parser.add_argument("--rounds", type=int, default=WARM_UP + MEASURED)
        parser.add_argument("--small", action="store_true", help="a few clients, to check correctness only")
        parser.add_argument("--weights", help="file for the weights after the first round (.npz)")
        parser.add_argument("--threads", type=int, default=CORES, help="per process, for frameworks that take it")
        self.arguments = parser.parse_args()
        self.workload = Workload(self.arguments.workload, SMALL if self.arguments.small else FULL)
        self.rounds, self.threads = self.arguments.rounds, self.arguments.threads
        self.seconds: list[float] = []
        self.resume()

    def resume(self) -> None:
        self._began = time.perf_counter()

    def lap(self) -> None:
        self.seconds.append(time.perf_counter() - self._began)

    def keep(self, weights: Arrays) -> None:
        """Stores the weights after the first round, in the layout of the workload."""
        if self.arguments.weights:
            np.savez(self.arguments.weights, **weights)

    def report(self, *packages: str) -> None:
        """Prints the line that `bench.py` reads."""
        examples = [self.workload.cohort_examples(r) for r in range(self.rounds)]
        line = {
            "seconds": [round(s, 5) for s in self.seconds],
            "examples": examples,
            "versions": {package: version(package) for package in packages},
        }
        print(json.dumps(line), flush=True)
