"""Logs a run to Weights & Biases."""

from typing import Any

from fedtrue.runner.callbacks.interface import Round, Start
from fedtrue.runner.callbacks.scalars import logged_scalars, missing_package


class WandB:
    """All numbers of a round, by its number in metrics.jsonl; the settings of the run as its config.

    Args:
        project: of Weights & Biases.
        **settings: further arguments of `wandb.init`: `mode="offline"` writes to `dir` only, `id=…, resume="allow"`
            continues an earlier run.

    >>> import fedtrue as ft
    >>> logger = ft.callbacks.WandB("my-project", mode="offline")  # doctest: +SKIP
    >>> ft.train(task, method, rounds=200, callbacks=[logger])  # doctest: +SKIP
    """

    def __init__(self, project: str | None = None, **settings: Any):
        self._wandb = _import_wandb()
        self.settings = {"project": project, **settings}
        self._run: Any = None

    def on_start(self, start: Start) -> None:
        own = {"config": dict(start.settings), "name": start.folder.name if start.folder else None}
        self._run = self._wandb.init(**{"reinit": "create_new", **own, **self.settings})

    def on_round(self, info: Round) -> None:
        self._run.log(logged_scalars(dict(info.line)), step=info.line["round"])

    def on_end(self, result: Any) -> None:
        self._run.summary["status"] = result.summary["status"]
        self._run.finish()
        self._run = None

    def close(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=1)


def _import_wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise missing_package("WandB", "wandb") from None
    return wandb
