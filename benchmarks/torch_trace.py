"""What the trace costs: milliseconds per training step of a small CNN in PyTorch on a CPU, with it and without.

    python benchmarks/torch_trace.py                    # about a minute; prints a table
    python benchmarks/torch_trace.py --out FILE.json    # and keeps it

Two convolutions and two dense layers (225,870 weights) on random images of 28 × 28, batches of 32. The two loops take
steps by turns, so that other load on the machine affects both. A time is the mean of the fastest tenth of the steps,
which other processes disturb least.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn

import fedtrue as ft

BATCH, BATCHES, STEPS, WARM_UP_STEPS = 32, 64, 500, 20
SETTINGS = {  # name → (optimizer of the parameters, correction)
    "SGD, momentum: joint": (lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9), "joint"),
    "Adagrad: joint": (lambda params: torch.optim.Adagrad(params, lr=1e-3), "joint"),
    "Adam: joint": (lambda params: torch.optim.Adam(params, lr=1e-3), "joint"),
    "AdamW: joint": (lambda params: torch.optim.AdamW(params, lr=1e-3), "joint"),
    "AdamW, fused: joint": (lambda params: torch.optim.AdamW(params, lr=1e-3, fused=True), "joint"),
    "RMSprop, momentum: joint": (lambda params: torch.optim.RMSprop(params, lr=1e-3, momentum=0.9), "joint"),
    "Adam: moments": (lambda params: torch.optim.Adam(params, lr=1e-3), "moments"),
    "Adam: local(report=intercept)": (lambda params: torch.optim.Adam(params, lr=1e-3), "local(report=intercept)"),
}


def network():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 140), nn.ReLU(), nn.Linear(140, 10)),
    )


class Client:
    """A training loop; `correction` None: without a trace."""

    def __init__(self, build, correction=None):
        torch.manual_seed(0)
        self.model = network()
        self.optimizer = build(self.model.parameters())
        self.trace = correction and ft.torch.trace(self.optimizer, correction)
        batches = [(torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))) for _ in range(BATCHES)]
        self.batches = itertools.cycle(batches)

    def step(self):
        """Seconds that one training step took."""
        x, y = next(self.batches)
        began = time.perf_counter()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        return time.perf_counter() - began


def measure(build, correction):
    """Milliseconds per step without a trace, and with it."""
    clients = Client(build), Client(build, correction)
    turns = [[client.step() for client in clients] for _ in range(WARM_UP_STEPS + STEPS)][WARM_UP_STEPS:]
    return [1e3 * statistics.mean(sorted(seconds)[: STEPS // 10]) for seconds in zip(*turns)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows there too, as JSON")
    parser.add_argument("--threads", type=int, metavar="INT", default=torch.get_num_threads(), help="of PyTorch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    weights = sum(param.numel() for param in network().parameters())
    print(f"{weights:,} weights, batches of {BATCH}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}")
    print(f"{'':32}{'without':>9}{'traced':>9}{'ratio':>8}   ms per step")
    rows = []
    for name, (build, correction) in SETTINGS.items():
        without, traced = measure(build, correction)
        rows.append({"setting": name, "ms_without": round(without, 3), "ms_traced": round(traced, 3)})
        print(f"{name:32}{without:9.3f}{traced:9.3f}{traced / without:8.3f}", flush=True)
    if arguments.out:
        about = {"weights": weights, "batch": BATCH, "threads": arguments.threads, "torch": torch.__version__}
        arguments.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
