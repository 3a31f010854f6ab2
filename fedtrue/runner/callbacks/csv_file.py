"""Writes one row per round to a CSV file."""

import csv
from pathlib import Path
from typing import Any

from fedtrue.runner.callbacks.interface import Round, Start
from fedtrue.tasks.task import metric_names

COLUMNS = ("round", "clients", "dropped", "missing", "seconds", "bytes_up", "bytes_down")


class CSV:
    """One row per round: its number, the metrics of the cohort as `train.loss`, evaluations as `test.accuracy` (empty
    for rounds without one), clients, seconds and bytes. A resumed run replaces the rows after its checkpoint.

    Args:
        path: the file; an existing one is replaced.

    >>> import tempfile, fedtrue as ft
    >>> file = tempfile.mkdtemp() + "/rounds.csv"
    >>> method = ft.fedopt(ft.client.sgd(0.01))
    >>> _ = ft.train(ft.tasks.quadratic(), method, rounds=2, callbacks=[ft.callbacks.CSV(file)])
    >>> open(file).readline().strip()
    'round,clients,dropped,missing,seconds,bytes_up,bytes_down,train.loss'
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file: Any = None

    def on_start(self, start: Start) -> None:
        trained, evaluated = metric_names(start.task).trained, metric_names(start.task).evaluated
        splits = {"train": trained, **dict.fromkeys(start.task.held_out_splits, evaluated)}
        self._metrics = [f"{split}.{name}" for split, names in splits.items() for name in names]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._writer.writerow([*COLUMNS, *self._metrics])
        for info in start.past:
            self.on_round(info)

    def on_round(self, info: Round) -> None:
        scalars, counts = info.scalars(), [getattr(info, name) for name in COLUMNS]
        self._writer.writerow([*counts, *(scalars.get(name, "") for name in self._metrics)])
        self._file.flush()

    def close(self) -> None:
        if self._file:
            self._file.close()
