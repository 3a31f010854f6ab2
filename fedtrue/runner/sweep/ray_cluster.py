"""Sweeps on a Ray cluster: each worker trains a group of cells and writes their run folders to a shared file system.

A worker that dies is replaced by Ray, and its cells resume from their checkpoints.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedtrue.runner.records import SWEEP
from fedtrue.runner.rounds import LogLine
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.runner.sweep.cells import read_sweep
from fedtrue.runner.sweep.run import Group, groups, run_groups

RETRIES = 5  # of a group whose worker died
POLL_SECONDS = 1.0  # how often finished groups and signals are checked


def run_on_ray(
    cell_groups: Sequence[Group],
    out: Path,
    at_once: int | None,
    address: str | None,
    stop: Stop,
    finished: Callable[[str], None],
    log: LogLine,
) -> None:
    """Trains every cell of the groups. `address`: of a cluster; None starts one on this machine."""
    ray = _import_ray()
    if not ray.is_initialized():
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        resources = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        workers = gpus or int(ray.cluster_resources()["CPU"])
        shares = _split_for_workers([[cell.name for cell in group] for _, group in cell_groups], at_once, workers)
        train = ray.remote(max_retries=RETRIES, **resources)(_train)
        pending = {train.remote(str(out.resolve()), names, at_once): names for names in shares}
        log(f"{len(pending)} groups of cells on a Ray cluster of {workers} workers")
        while pending:
            done, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
            for reference in done:
                ray.get(reference)
                for name in pending.pop(reference):
                    finished(name)
            if stop.signal:
                raise Stopped(stop.signal, None, out)
    finally:
        ray.shutdown()


def _split_for_workers(groups: Sequence[list[str]], at_once: int | None, workers: int) -> list[list[str]]:
    """Groups split so that every worker gets some cells; each part still trains in one program."""
    total = sum(map(len, groups))
    size = min(at_once or total, max(1, -(-total // workers)))
    return [group[begin : begin + size] for group in groups for begin in range(0, len(group), size)]


def _train(out: str, names: Sequence[str], at_once: int | None) -> None:
    """Runs in a worker: trains the cells with these names."""
    cells = [cell for cell in read_sweep(Path(out) / SWEEP) if cell.name in names]
    ignore = lambda *_: None
    run_groups(groups(cells, Path(out)), Path(out), at_once, Stop(), ignore, ignore)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs a package: pip install 'fedtrue[ray]'") from None
    return ray
