"""The tasks by name: the CLI's lists, the error for a wrong name and the docs are made from this table."""

from collections.abc import Callable
from typing import NamedTuple

from fedtrue.tasks.quadratic import quadratic
from fedtrue.tasks.shakespeare import shakespeare
from fedtrue.tasks.synthetic_tags import synthetic_tags
from fedtrue.tasks.synthetic_words import synthetic_words
from fedtrue.tasks.task import Task


class TaskEntry(NamedTuple):
    """How to make a task, what it is in one line, and which data sets it looks for (the first found is used)."""

    factory: Callable[..., Task]
    summary: str
    data_sets: tuple[str, ...] = ()


TASKS: dict[str, TaskEntry] = {
    "quadratic": TaskEntry(quadratic, "the paper's Fig. 1: a quadratic a client, minimiser known in closed form"),
    "shakespeare": TaskEntry(
        shakespeare, "the paper's next character, speaking roles as clients, two LSTM layers", ("shakespeare", "plays")
    ),
    "synthetic_words": TaskEntry(synthetic_words, "a stand-in for stackoverflow_words: its shapes, made-up words"),
    "synthetic_tags": TaskEntry(synthetic_tags, "a stand-in for stackoverflow_tags: its shapes, made-up words"),
}
