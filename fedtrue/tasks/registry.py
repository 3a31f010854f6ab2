"""The table of tasks by name: the CLI's lists, the error for a wrong name and the docs come from it."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fedtrue.data.imports import DamagedDataSet, imported_if_exists, imported_names
from fedtrue.names import suggestion
from fedtrue.tasks.cifar10 import cifar10
from fedtrue.tasks.cifar100 import cifar100
from fedtrue.tasks.descriptions import descriptions
from fedtrue.tasks.imported import imported
from fedtrue.tasks.mnist import mnist
from fedtrue.tasks.quadratic import quadratic
from fedtrue.tasks.shakespeare import shakespeare
from fedtrue.tasks.stackexchange import stackexchange
from fedtrue.tasks.stackoverflow_tags import stackoverflow_tags
from fedtrue.tasks.stackoverflow_words import stackoverflow_words
from fedtrue.tasks.synthetic_tags import synthetic_tags
from fedtrue.tasks.synthetic_words import synthetic_words
from fedtrue.tasks.task import Task


class TaskEntry(NamedTuple):
    """How to build a task, its description in one line, and its data sets (the first that exists is used)."""

    factory: Callable[..., Task]
    summary: str
    data_sets: tuple[str, ...] = ()


TASKS: dict[str, TaskEntry] = {
    "quadratic": TaskEntry(quadratic, "the paper's Fig. 1: one quadratic per client, minimiser known in closed form"),
    "stackoverflow_words": TaskEntry(
        stackoverflow_words, "the paper's next word: 342,477 users, 10,000 words, an LSTM", ("stackoverflow",)
    ),
    "stackoverflow_tags": TaskEntry(
        stackoverflow_tags, "the paper's tags: 342,477 users, 500 tags, logistic regression", ("stackoverflow",)
    ),
    "shakespeare": TaskEntry(
        shakespeare, "the paper's next character: speaking roles, two LSTM layers", ("shakespeare", "plays")
    ),
    "cifar100": TaskEntry(
        cifar100, "the paper's images: 500 clients by Pachinko allocation, ResNet-18 with group norm", ("cifar100",)
    ),
    "cifar10": TaskEntry(cifar10, "images of 10 classes, clients by a Dirichlet split", ("cifar10",)),
    "mnist": TaskEntry(mnist, "digits, 539 writers as clients; logistic regression or a small CNN", ("mnist",)),
    "stackexchange": TaskEntry(
        stackexchange, "next word or tags on any Stack Exchange site, users as clients", ("stackexchange",)
    ),
    "descriptions": TaskEntry(descriptions, "tags of Debian's packages, maintainers as clients", ("debian",)),
    "synthetic_words": TaskEntry(synthetic_words, "a stand-in for stackoverflow_words: same shapes, synthetic words"),
    "synthetic_tags": TaskEntry(synthetic_tags, "a stand-in for stackoverflow_tags: same shapes, synthetic words"),
}


def find_task(name: str) -> TaskEntry:
    """The task of this name: one of TASKS, or of a data set that was imported."""
    if name in TASKS:
        return TASKS[name]
    if (source := imported_if_exists(name)) is not None:
        return TaskEntry(partial(imported, name), source.summary, (name,))
    valid = [*TASKS, *imported_names()]
    raise ValueError(f"task {name!r} is not known{suggestion(name, valid)}; choose one of: {', '.join(valid)}")


def all_tasks() -> dict[str, TaskEntry]:
    """TASKS, and a task for every data set that was imported."""
    return TASKS | {name: _imported_task(name) for name in imported_names()}


def _imported_task(name: str) -> TaskEntry:
    """A damaged data set is listed too; its summary says what to do."""
    try:
        return find_task(name)
    except DamagedDataSet as problem:
        return TaskEntry(partial(imported, name), str(problem), (name,))
