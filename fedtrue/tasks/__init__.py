"""Tasks: data, model, loss, metrics and recommended settings."""

from fedtrue.tasks.quadratic import quadratic
from fedtrue.tasks.registry import TASKS, TaskEntry
from fedtrue.tasks.shakespeare import shakespeare
from fedtrue.tasks.synthetic_tags import synthetic_tags
from fedtrue.tasks.synthetic_words import synthetic_words
from fedtrue.tasks.task import from_arrays

__all__ = ["TASKS", "TaskEntry", "from_arrays", "quadratic", "shakespeare", "synthetic_tags", "synthetic_words"]
