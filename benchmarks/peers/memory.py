"""Peak memory of a process and its descendants; shared pages count once (PSS on Linux)."""

import threading
from collections.abc import Iterator
from pathlib import Path

SAMPLING_SECONDS = 1.0  # rare enough not to disturb the measurement


class PeakMemory:
    """`with PeakMemory(pid) as peak: …`, then `peak.megabytes`."""

    def __init__(self, pid: int):
        self.pid, self.megabytes = pid, 0
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLING_SECONDS):
            kilobytes = sum(map(_kilobytes, _descendants(self.pid)))
            self.megabytes = max(self.megabytes, kilobytes // 1024)


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in (_read(children) or "").split():
            yield from _descendants(int(child))


def _kilobytes(pid: int) -> int:
    fields = dict(line.split(":") for line in (_read(Path(f"/proc/{pid}/smaps_rollup")) or "").splitlines()[1:])
    return int(fields["Pss"].split()[0]) if "Pss" in fields else 0


def _read(path: Path) -> str | None:
    """None if the process has ended."""
    try:
        return path.read_text()
    except OSError:
        return None
