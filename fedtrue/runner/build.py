"""Builds the task, the method and the arguments of a simulation from the settings of a run."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.method import Method
from fedtrue.data.batches import steps_per_epoch
from fedtrue.names import look_up
from fedtrue.precision import default_precision
from fedtrue.runner.resolve import method_spec
from fedtrue.runner.settings import RunConfig
from fedtrue.spec import check_options, from_spec, option_table, with_spec
from fedtrue.tasks.registry import TASKS
from fedtrue.tasks.task import Task, with_precision

EPOCHS_SEED = 0  # of the number of epochs per client: a property of the federation, not of a run


def load_task(config: RunConfig) -> Task:
    """The task, with the settings of this run."""
    factory = look_up("task", TASKS, config.task).factory
    check_options("task", config.task, config.task_options)
    options = dict(config.task_options)
    chooses_precision = "dtype" in option_table(factory)
    if chooses_precision:
        options = {"dtype": config.precision or default_precision(), **options}
    task = factory(**options)
    if config.precision and not chooses_precision:
        task = with_precision(task, config.precision)
    overrides: dict[str, Any] = {
        "local_epochs": config.local_epochs,
        "batch_size": config.batch_size,
        "accumulate": config.accumulate,
        "evaluation_limit": config.evaluation_limit,
    }
    overrides = {name: check_int(name, value, low=1) for name, value in overrides.items() if isinstance(value, int)}
    return with_spec(replace(task, **overrides), task.spec)


def build_method(config: RunConfig, task: Task) -> Method:
    """The method; learning rates that are not set are those the task recommends."""
    return from_spec(method_spec(config, task))


def steps_of_clients(config: RunConfig, task: Task) -> int | list[int] | None:
    """`local_steps`, or the steps of each client if `local_epochs` is a range; None: the task's epochs for all."""
    if not isinstance(config.local_epochs, list):
        return config.local_steps
    fewest, most = config.local_epochs if len(config.local_epochs) == 2 else (0, 0)
    if not 1 <= fewest <= most:
        raise ValueError(f"local_epochs takes a number or FEWEST,MOST, e.g. 1,20, not {config.local_epochs}")
    if config.local_steps is not None:
        raise ValueError("local_steps and a range of local_epochs exclude each other: give one of them")
    epochs = np.random.default_rng(EPOCHS_SEED).integers(fewest, most, size=len(task.train), endpoint=True)
    return (epochs * steps_per_epoch(task.train.sizes, task.examples_per_step)).tolist()


def simulation_arguments(config: RunConfig, task: Task) -> dict[str, Any]:
    """The arguments of `Simulation` for these settings."""
    names = ("cohort", "rate_multipliers", "seed", "lanes")
    return {**{name: getattr(config, name) for name in names}, "local_steps": steps_of_clients(config, task)}
