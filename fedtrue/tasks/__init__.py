"""Tasks: data, model, loss, metrics and recommended settings."""

from fedtrue.models.lora import lora
from fedtrue.tasks.cifar10 import cifar10
from fedtrue.tasks.cifar100 import cifar100
from fedtrue.tasks.descriptions import descriptions
from fedtrue.tasks.hold_out import hold_out_clients
from fedtrue.tasks.imported import imported
from fedtrue.tasks.metric import Metric
from fedtrue.tasks.mnist import mnist
from fedtrue.tasks.own_file import from_file
from fedtrue.tasks.quadratic import quadratic
from fedtrue.tasks.registry import TASKS, TaskEntry
from fedtrue.tasks.shakespeare import shakespeare
from fedtrue.tasks.stackexchange import stackexchange
from fedtrue.tasks.stackoverflow_tags import stackoverflow_tags
from fedtrue.tasks.stackoverflow_words import stackoverflow_words
from fedtrue.tasks.supervised import supervised
from fedtrue.tasks.synthetic_tags import synthetic_tags
from fedtrue.tasks.synthetic_words import synthetic_words
from fedtrue.tasks.task import from_arrays, with_precision

__all__ = [
    "TASKS",
    "Metric",
    "TaskEntry",
    "cifar10",
    "cifar100",
    "descriptions",
    "from_arrays",
    "from_file",
    "hold_out_clients",
    "imported",
    "lora",
    "mnist",
    "quadratic",
    "shakespeare",
    "stackexchange",
    "stackoverflow_tags",
    "stackoverflow_words",
    "supervised",
    "synthetic_tags",
    "synthetic_words",
    "with_precision",
]
