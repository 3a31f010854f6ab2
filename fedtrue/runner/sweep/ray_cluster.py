"""A sweep over a Ray cluster: each worker takes a group of cells and writes their run folders, which all must see.

A worker that dies is replaced by Ray, and its cells go on from their checkpoints.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedtrue.runner.records import SWEEP
from fedtrue.runner.rounds import Say
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.runner.sweep.cells import read_sweep
from fedtrue.runner.sweep.run import Group, groups, run_groups

RETRIES = 5  # of a group whose worker died
LOOK = 1.0  # seconds between two looks at what has ended


def run_on_ray(
    found: Sequence[Group],
    out: Path,
    at_once: int | None,
    address: str | None,
    stop: Stop,
    finished: Callable[[str], None],
    say: Say,
) -> None:
    """Every cell of the groups to its end. `address`: a cluster's; None starts one on this machine."""
    ray = _imported()
    if not ray.is_initialized():
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        needs = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        workers = gpus or int(ray.cluster_resources()["CPU"])
        shares = _shares([[cell.name for cell in group] for _, group in found], at_once, workers)
        train = ray.remote(max_retries=RETRIES, **needs)(_train)
        pending = {train.remote(str(out.resolve()), names, at_once): names for names in shares}
        say(f"{len(pending)} groups of cells on a Ray cluster of {workers} workers")
        while pending:
            done, _ = ray.wait(list(pending), timeout=LOOK)
            for reference in done:
                ray.get(reference)
                for name in pending.pop(reference):
                    finished(name)
            if stop.signal:
                raise Stopped(stop.signal, None, out)
    finally:
        ray.shutdown()


def _shares(groups: Sequence[list[str]], at_once: int | None, workers: int) -> list[list[str]]:
    """Groups cut so that every worker gets some: a share still trains together, in one program."""
    total = sum(map(len, groups))
    most = min(at_once or total, max(1, -(-total // workers)))
    return [group[begin : begin + most] for group in groups for begin in range(0, len(group), most)]


def _train(out: str, names: Sequence[str], at_once: int | None) -> None:
    """In a worker: the cells of these names."""
    cells = [cell for cell in read_sweep(Path(out) / SWEEP) if cell.name in names]
    quiet = lambda *_: None
    run_groups(groups(cells, Path(out)), Path(out), at_once, Stop(), quiet, quiet)


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("--on ray needs a package: pip install 'fedtrue[ray]'") from None
    return ray
