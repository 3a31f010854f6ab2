"""How the tests compile: one cache of compiled programs for all of them, and quick compilation for `make test`.

The cache is in `.cache/`, which git ignores. Workers, the processes that tests start and the next run of the tests
share it. A program found there still counts as compiled wherever a test counts: `_cache_size()` counts the entries of
a function's own table.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / ".cache" / "compiled"
MAX_BYTES = 1_000_000_000  # of all entries: what changed code no longer needs is never read again
READ_ONLY = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}  # for processes that are killed, perhaps in a write
# With them, and without the optimizer, a small `ft.train` took 0.7 s of CPU time in place of 1.8 s. They are given only
# to the release they were tried with: XLA ends a process at a flag that it does not know.
QUICK_FLAGS, KNOWN_TO_JAXLIB = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1", "0.10."


def share() -> None:
    """By the environment, so that processes share it too; what is set already stays. Call it before JAX compiles."""
    _set("JAX_COMPILATION_CACHE_DIR", str(ROOT / cpu_fingerprint()), str)
    _set("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0", float)
    _set("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1", int)
    _set("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none", str)  # their path is part of every key: a copy is useless
    _write_atomically()


def compile_quickly() -> None:
    """Most tests run a program for milliseconds that took seconds to optimize. Call it before JAX compiles."""
    _set("JAX_DISABLE_MOST_OPTIMIZATIONS", "1", lambda value: value == "1")
    if version("jaxlib").startswith(KNOWN_TO_JAXLIB) and QUICK_FLAGS not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_FLAGS}".strip()


def _set(variable: str, value: str, parse: Callable[[str], Any]) -> None:
    """In the environment and, if a conftest.py has imported JAX already, in its configuration too."""
    if variable not in os.environ:
        os.environ[variable] = value
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(variable.lower(), parse(value))


def cpu_fingerprint() -> str:
    """XLA compiles for the instructions of this CPU; JAX's key of a program does not name them."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    return hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:12]


def keep_small() -> None:
    if sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) > MAX_BYTES:
        shutil.rmtree(ROOT)


def _write_atomically() -> None:
    """JAX writes an entry in place: another worker could read half of it, and an interrupted run would leave it so."""
    from jax._src.lru_cache import LRUCache

    def put(cache, key: str, value: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=str(cache.path), suffix=".part", delete=False) as partial:
            partial.write(value)
        Path(partial.name).replace(Path(str(cache.path)) / f"{key}-cache")

    LRUCache.put = put
