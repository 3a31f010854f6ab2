"""fedtrue: federated learning with adaptive client optimizers, corrected to head for the right answer."""

from importlib import import_module
from types import ModuleType

from fedtrue import (
    aggregator,
    attack,
    callbacks,
    client,
    compression,
    data,
    interface,
    methods,
    privacy,
    sampling,
    schedules,
    server,
    tasks,
    theory,
)
from fedtrue.algorithm.availability import Availability
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.data.client_data import ClientData
from fedtrue.engine.devices import use_all_cores
from fedtrue.engine.simulation import Simulation
from fedtrue.reports.comparison import ComparisonTable, compare
from fedtrue.reports.write import report
from fedtrue.runner.diagnose_run import diagnose
from fedtrue.runner.evaluate import evaluate
from fedtrue.runner.journal import Result
from fedtrue.runner.load import load_run
from fedtrue.runner.own_loop import rounds
from fedtrue.runner.personalise import Personalisation, personalise
from fedtrue.runner.sweep.run import sweep
from fedtrue.runner.train import train
from fedtrue.runner.weights import load_weights, save_weights
from fedtrue.spec import from_spec
from fedtrue.tasks.task import Task
from fedtrue.version import __version__

__all__ = [
    "Availability",
    "ClientData",
    "ComparisonTable",
    "Correction",
    "Method",
    "Personalisation",
    "Result",
    "Simulation",
    "Task",
    "__version__",
    "aggregator",
    "attack",
    "callbacks",
    "client",
    "compare",
    "compression",
    "data",
    "diagnose",
    "evaluate",
    "fedopt",
    "from_spec",
    "interface",
    "load_run",
    "load_weights",
    "methods",
    "personalise",
    "privacy",
    "report",
    "rounds",
    "sampling",
    "save_weights",
    "schedules",
    "server",
    "sweep",
    "tasks",
    "theory",
    "train",
    "use_all_cores",
]

LAZY = {
    "torch": "torch",
    "flower": "flwr",
}  # imported on first use → what it needs, which is not installed with fedtrue


def __getattr__(name: str) -> ModuleType:
    if name in LAZY:
        return import_module(f"fedtrue.{name}")
    raise AttributeError(f"module 'fedtrue' has no attribute {name!r}")
