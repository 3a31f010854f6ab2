"""fedtrue: federated learning with adaptive client optimizers, corrected to head for the right answer."""

from fedtrue import client, methods, schedules, server, tasks, theory
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.data.client_data import ClientData
from fedtrue.engine.simulation import Simulation
from fedtrue.reports.write import report
from fedtrue.runner.diagnose_run import diagnose
from fedtrue.runner.evaluate import evaluate
from fedtrue.runner.journal import Result
from fedtrue.runner.load import load_run
from fedtrue.runner.sweep.run import sweep
from fedtrue.runner.train import train
from fedtrue.spec import from_spec
from fedtrue.tasks.task import Task
from fedtrue.version import __version__

__all__ = [
    "ClientData",
    "Correction",
    "Method",
    "Result",
    "Simulation",
    "Task",
    "__version__",
    "client",
    "diagnose",
    "evaluate",
    "fedopt",
    "from_spec",
    "load_run",
    "methods",
    "report",
    "schedules",
    "server",
    "sweep",
    "tasks",
    "theory",
    "train",
]
