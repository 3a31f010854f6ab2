"""fedtrue: federated learning with adaptive client optimizers, corrected to head for the right answer."""

from fedtrue import client, server, tasks
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.runner.journal import Result
from fedtrue.runner.train import train
from fedtrue.tasks.task import Task
from fedtrue.version import __version__

__all__ = ["Method", "Result", "Task", "__version__", "client", "fedopt", "server", "tasks", "train"]
