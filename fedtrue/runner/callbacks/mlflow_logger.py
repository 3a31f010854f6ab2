"""Logs a run to MLflow."""

import time
from typing import Any

from fedtrue.runner.callbacks.interface import Round, Start
from fedtrue.runner.callbacks.scalars import logged_scalars, missing_package
from fedtrue.runner.settings import dotted

MAX_PARAM_LENGTH = 500  # characters; older servers refuse longer values


class MLflow:
    """All numbers of a round as metrics, by its number in metrics.jsonl; the settings of the run as parameters.

    Args:
        experiment: its name; it is created if it does not exist.
        tracking_uri: a server, or a local database as "sqlite:///mlflow.db"; without it, MLflow's own setting.
        run_name: without it, the name of the run folder.
        run_id: an earlier run of MLflow that is continued.

    >>> import fedtrue as ft
    >>> logger = ft.callbacks.MLflow("my-experiment", tracking_uri="sqlite:///mlflow.db")  # doctest: +SKIP
    >>> ft.train(task, method, rounds=200, callbacks=[logger])  # doctest: +SKIP
    """

    def __init__(
        self,
        experiment: str = "fedtrue",
        tracking_uri: str | None = None,
        run_name: str | None = None,
        run_id: str | None = None,
    ):
        _import_mlflow()
        self.experiment, self.tracking_uri, self.run_name, self.run_id = experiment, tracking_uri, run_name, run_id
        self._client: Any = None

    def on_start(self, start: Start) -> None:
        self._client = _import_mlflow().MlflowClient(tracking_uri=self.tracking_uri)
        if self.run_id is None:
            found = self._client.get_experiment_by_name(self.experiment)
            experiment = found.experiment_id if found else self._client.create_experiment(self.experiment)
            name = self.run_name or (start.folder.name if start.folder else None)
            self.run_id = self._client.create_run(experiment, run_name=name).info.run_id
            for key, value in dotted(start.settings).items():
                self._client.log_param(self.run_id, key, str(value)[:MAX_PARAM_LENGTH])

    def on_round(self, info: Round) -> None:
        from mlflow.entities import Metric

        now, step = int(1000 * time.time()), info.line["round"]
        metrics = [Metric(name, value, now, step) for name, value in logged_scalars(dict(info.line)).items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def on_end(self, result: Any) -> None:
        self._client.set_tag(self.run_id, "status", result.summary["status"])
        self._end("FINISHED")

    def close(self) -> None:
        self._end("KILLED")

    def _end(self, status: str) -> None:
        if self._client is not None:
            self._client.set_terminated(self.run_id, status)
            self._client = None


def _import_mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise missing_package("MLflow", "mlflow") from None
    return mlflow
