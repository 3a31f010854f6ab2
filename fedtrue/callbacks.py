"""`ft.callbacks.*`: objects that `ft.train(…, callbacks=[…])` calls after every round."""

from fedtrue.runner.callbacks.csv_file import CSV
from fedtrue.runner.callbacks.early_stopping import EarlyStopping
from fedtrue.runner.callbacks.interface import STOP, Round, Start, StopRun
from fedtrue.runner.callbacks.mlflow_logger import MLflow
from fedtrue.runner.callbacks.tensorboard import TensorBoard
from fedtrue.runner.callbacks.wandb_logger import WandB

__all__ = ["CSV", "STOP", "EarlyStopping", "MLflow", "Round", "Start", "StopRun", "TensorBoard", "WandB"]
