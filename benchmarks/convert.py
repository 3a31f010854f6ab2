"""Time and memory to convert a Stack Overflow file into next-word sequences.

    python benchmarks/convert.py [--examples 1000000] [--clients 2500] [--interleaved]

Writes a file in TFF's SQLite layout with all six features and about 15 Zipf-distributed words per example, converts it
in a separate process, prints one JSON line and appends it to benchmarks/results/convert.json.
Target: at least 50,000 examples per second, less than 1 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "data")]

from generated import stackoverflow_message, write_sqlite  # noqa: E402

from fedtrue.data import tff_sqlite  # noqa: E402
from fedtrue.data.cache import cached  # noqa: E402
from fedtrue.data.columns import Chunk, Fixed, batched  # noqa: E402
from fedtrue.data.text import encode_sentences, index_of  # noqa: E402

RESULTS = HERE / "results" / "convert.json"
VOCABULARY_WORDS, LENGTH = 10_000, 20
WORDS_IN_USE = 50_000  # more than the vocabulary, so that unknown words occur
MEAN_WORDS = 15


def rows(examples: int, clients: int, interleaved: bool) -> Iterator[tuple[str, str, bytes]]:
    rng = np.random.default_rng(0)
    words = [f"word{n}".encode() for n in range(WORDS_IN_USE)]
    for first in range(0, examples, 10_000):
        block = min(10_000, examples - first)
        lengths = 1 + rng.poisson(MEAN_WORDS - 1, block)
        chosen = iter(np.minimum(rng.zipf(1.2, lengths.sum()) - 1, WORDS_IN_USE - 1).tolist())
        for row, length in enumerate(lengths.tolist(), start=first):
            client = row % clients if interleaved else row * clients // examples
            tokens = b" ".join([words[next(chosen)] for _ in range(length)])
            yield "train", f"{client:08d}", stackoverflow_message(tokens, score=row % 40 - 5)


def convert(database: Path) -> dict:
    """One timed conversion. It runs in a new process, so that the peak memory is its own."""
    index = index_of([f"word{n}" for n in range(VOCABULARY_WORDS)])

    def examples():
        for batch in batched(tff_sqlite.read(database, "train", ["tokens"])):
            sentences = [features["tokens"] for _, features in batch]
            yield Chunk([client for client, _ in batch], {"tokens": encode_sentences(sentences, index, LENGTH)})

    began, cpu_began = time.perf_counter(), time.process_time()
    schema = {"tokens": Fixed((LENGTH + 1,), np.uint16)}
    data = cached("benchmark", [database], 1, {"vocabulary": VOCABULARY_WORDS}, schema, examples)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    began = time.perf_counter()
    cached("benchmark", [database], 1, {"vocabulary": VOCABULARY_WORDS}, schema, examples)
    return {
        "examples": data.examples,
        "clients": len(data),
        "seconds": round(seconds, 2),
        "examples_per_second": round(data.examples / seconds),
        "examples_per_cpu_second": round(data.examples / cpu_seconds),  # an estimate for an idle machine
        "peak_resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "opening_again_ms": round(1000 * (time.perf_counter() - began), 1),
        "load_average": round(os.getloadavg()[0], 2),  # above 1: other processes used the CPU too
    }


def machine() -> dict:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cpu = models[0] if models else platform.processor()
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}


def convert_in_new_process(database: Path, cache: Path) -> dict:
    command = [sys.executable, __file__, "--convert", str(database)]
    environment = {**os.environ, "FEDTRUE_CACHE": str(cache)}
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def record(result: dict) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    RESULTS.write_text(json.dumps([*earlier, result], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=2_500)
    parser.add_argument(
        "--interleaved", action="store_true", help="alternate the clients' rows, so that every row has to move"
    )
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convert:
        print(json.dumps(convert(options.convert)))
        return
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "stackoverflow.sqlite"
        write_sqlite(database, rows(options.examples, options.clients, options.interleaved))
        result = convert_in_new_process(database, Path(folder) / "cache")
    when = datetime.now(UTC).isoformat(timespec="seconds")
    result = {"when": when, "interleaved": options.interleaved, **result, "machine": machine()}
    print(json.dumps(result))
    record(result)


if __name__ == "__main__":
    main()
