"""fedtrue: federated learning with adaptive client optimizers, corrected to head for the right answer."""

from fedtrue import client, server, tasks
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.runner.journal import Result
from fedtrue.runner.train import train
from fedtrue.tasks.task import Task

__version__ = "0.1.0"
__all__ = ["Method", "Result", "Task", "client", "fedopt", "server", "tasks", "train"]
