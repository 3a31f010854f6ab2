"""Loads a run folder or an archived run into Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.runner.checkpoint import arrays_from
from fedtrue.runner.client_metrics import CLIENT_METRICS, ClientMetrics, read_client_metrics
from fedtrue.runner.records import MODEL, Run, read_run
from fedtrue.types import Params


@dataclass(frozen=True)
class LoadedRun:
    """A run as it was recorded."""

    path: Path
    config: dict[str, Any]  # every setting, as in config.toml
    origin: dict[str, Any]  # version, commit, devices, command
    metrics: dict[str, np.ndarray]  # one entry per round
    evaluations: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]  # split → metric → (rounds, values)
    summary: dict[str, Any] | None  # None if the run has not ended
    params: Params | None  # the final weights; None if the run has not ended or is archived

    @property
    def clients(self) -> ClientMetrics:
        """{split: {"client": names, metric: one value per client}} after the last round, read from the run folder."""
        return read_client_metrics(self.path / CLIENT_METRICS)

    def __repr__(self) -> str:
        rounds = len(self.metrics.get("round", ()))
        return f"LoadedRun({str(self.path)!r}, {self.config.get('task')}, {rounds} rounds)"


def load_run(path: str | Path) -> LoadedRun:
    """Load a run's settings, records and weights.

    Args:
        path: a run folder, or one run of an archive (`NAME.runs.xz/RUN`).

    Returns:
        The config, metrics as arrays, evaluations, summary and, for a run folder whose run has ended, the final
        weights: a nested dict of arrays, or one array if the model is a single array.

    >>> import tempfile, fedtrue as ft
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = ft.train(ft.tasks.quadratic(), ft.fedopt(ft.client.sgd(0.01)), rounds=3, out=folder)
    >>> run = ft.load_run(folder)
    >>> run.config["method"], len(run.metrics["loss"]), run.params.shape
    ('fedopt', 3, (2,))
    """
    run: Run = read_run(Path(path))
    model = Path(path) / MODEL
    params = nested(arrays_from(model.read_bytes())) if model.exists() else None
    return LoadedRun(run.path, run.config, run.origin, run.rounds, run.evaluations, run.summary, params)


def nested(arrays: dict[str, np.ndarray]) -> Params:
    """{"a/b": array} as {"a": {"b": array}}; a single array has the name `params`."""
    if set(arrays) == {"params"}:
        return arrays["params"]
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *folders, name = path.split("/")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[name] = array
    return tree
