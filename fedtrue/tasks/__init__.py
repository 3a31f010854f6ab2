"""Tasks: data, model, loss, metrics and recommended settings."""

from fedtrue.tasks.quadratic import quadratic
from fedtrue.tasks.task import from_arrays

__all__ = ["from_arrays", "quadratic"]
