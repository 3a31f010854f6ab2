"""Records small enough for a repository: settings, summary and the lines, without weights, checkpoints and cohorts."""

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrue.files import write_atomically
from fedtrue.runner.records import CONFIG, METRICS, SUMMARY, SWEEP, Line, as_json, read_lines, read_summary

LEFT_OUT = ("cohort", "spread", "idle_steps", "steps")
DIGITS = 6


def pack(run: Path, target: Path) -> int:
    """Writes the small copy of a run folder that has ended; returns its bytes. The same records give the same bytes."""
    if read_summary(run) is None:
        raise ValueError(f"{run} has not ended: `fedtrue resume {run}` first")
    lines = "".join(as_json(_short(line)) for line in read_lines(run / METRICS))
    files = {
        CONFIG: (run / CONFIG).read_bytes(),
        SUMMARY: (run / SUMMARY).read_bytes(),
        METRICS + ".gz": gzip.compress(lines.encode(), 9, mtime=0),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(target / name, data)
    if (run.parent / SWEEP).exists():
        write_atomically(target.parent / SWEEP, (run.parent / SWEEP).read_bytes())
    return sum(map(len, files.values()))


def _short(line: Line) -> Line:
    return {name: _rounded(value) for name, value in line.items() if name not in LEFT_OUT}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(entry) for name, entry in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
