"""Records small enough for a repository: settings, summary and the lines, without weights, checkpoints and cohorts."""

import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrue.files import write_atomically
from fedtrue.runner.records import CONFIG, METRICS, PACKED, SUMMARY, SWEEP, Line, as_json, read_lines, read_summary

LEFT_OUT = ("cohort", "spread", "idle_steps", "steps")
EVALUATED, TRAINED = 6, 4  # digits of an evaluation's numbers, and of a round's own, which are noise beyond


def pack(run: Path, target: Path) -> int:
    """Writes the small copy of a run folder that has ended; returns its bytes. The same records give the same bytes."""
    if read_summary(run) is None:
        raise ValueError(f"{run} has not ended: `fedtrue resume {run}` first")
    lines = "".join(as_json(_short(line)) for line in read_lines(run / METRICS))
    files = {
        CONFIG: (run / CONFIG).read_bytes(),
        SUMMARY: (run / SUMMARY).read_bytes(),
        METRICS + PACKED: lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(target / name, data)
    if (run.parent / SWEEP).exists():
        write_atomically(target.parent / SWEEP, (run.parent / SWEEP).read_bytes())
    return sum(map(len, files.values()))


def _short(line: Line) -> Line:
    kept = {name: value for name, value in line.items() if name not in LEFT_OUT}
    return {name: _rounded(value, EVALUATED if name == "evaluation" else TRAINED) for name, value in kept.items()}


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(entry, digits) for name, entry in value.items()}
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
