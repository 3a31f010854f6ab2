"""What every runner shares: its arguments, its clock, and the one JSON line it ends with."""

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
    """A workload, how many rounds of it, and when each ended.

    `lap()` ends a round and `resume()` begins the next; what lies between them is not timed.
    """

    def __init__(self, description: str | None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("workload", choices=list(KINDS))
        parser.add_argument("--rounds", type=int, default=WARM_UP + MEASURED)
        parser.add_argument("--small", action="store_true", help="a few clients: for correctness, not for time")
        parser.add_argument("--weights", help="where to store the weights after the first round (.npz)")
        parser.add_argument("--threads", type=int, default=CORES, help="of each process, where the framework asks")
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
        """The weights after the first round, in the workload's own layout."""
        if self.arguments.weights:
            np.savez(self.arguments.weights, **weights)

    def report(self, *packages: str) -> None:
        """The line `bench.py` reads."""
        examples = [self.workload.cohort_examples(r) for r in range(self.rounds)]
        line = {
            "seconds": [round(s, 5) for s in self.seconds],
            "examples": examples,
            "versions": {package: version(package) for package in packages},
        }
        print(json.dumps(line), flush=True)
