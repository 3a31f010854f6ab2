"""The callbacks that the settings of a run ask for."""

from pathlib import Path

from fedtrue.runner.callbacks.csv_file import CSV
from fedtrue.runner.callbacks.early_stopping import PATIENCE, EarlyStopping
from fedtrue.runner.callbacks.interface import Callback
from fedtrue.runner.callbacks.mlflow_logger import MLflow
from fedtrue.runner.callbacks.tensorboard import TensorBoard
from fedtrue.runner.callbacks.wandb_logger import WandB
from fedtrue.runner.settings import RunConfig


def callbacks_of(config: RunConfig, out: Path | None) -> list[Callback]:
    """Loggers, then early stopping; `out` is the run folder."""
    found: list[Callback] = []
    if out and config.tensorboard:
        found.append(TensorBoard(out / "tensorboard"))
    if out and config.csv:
        found.append(CSV(out / "metrics.csv"))
    if config.wandb:
        found.append(WandB(config.wandb))
    if config.mlflow:
        found.append(MLflow(config.mlflow))
    if config.early_stop:
        found.append(EarlyStopping(config.early_stop, config.patience or PATIENCE))
    return found
