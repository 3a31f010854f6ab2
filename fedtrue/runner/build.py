"""Builds the task, the method and the arguments of a simulation from the settings of a run."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.algorithm.method import Method
from fedtrue.data.batches import steps_per_epoch
from fedtrue.precision import default_precision
from fedtrue.runner.resolve import method_spec
from fedtrue.runner.settings import RunConfig, availability_of
from fedtrue.spec import check_option_names, from_spec, option_table, with_spec
from fedtrue.tasks.hold_out import hold_out_clients
from fedtrue.tasks.own_file import from_file, own_factory, task_file
from fedtrue.tasks.registry import find_task
from fedtrue.tasks.task import Task, with_precision

EPOCHS_SEED = 0  # of the number of epochs per client: a property of the federation, not of a run


def load_task(config: RunConfig) -> Task:
    """The task, with the settings of this run."""
    factory, build = task_factory(config)
    options = dict(config.task_options)
    chooses_precision = "dtype" in option_table(factory)
    if chooses_precision:
        options = {"dtype": config.precision or default_precision(), **options}
    task = build(**options)
    if config.precision and not chooses_precision:
        task = with_precision(task, config.precision)
    overrides: dict[str, Any] = {
        "local_epochs": config.local_epochs,
        "batch_size": config.batch_size,
        "accumulate": config.accumulate,
        "evaluation_limit": config.evaluation_limit,
    }
    overrides = {name: check_int(name, value, low=1) for name, value in overrides.items() if isinstance(value, int)}
    task = with_spec(replace(task, **overrides), task.spec)
    if config.holdout_clients is None or task.holdout_clients == config.holdout_clients:
        return task  # a task of the user's own may hold out clients itself
    return hold_out_clients(task, config.holdout_clients)


def task_factory(config: RunConfig) -> tuple[Callable[..., Task], Callable[..., Task]]:
    """The function whose arguments are the task's options, and the one that builds the task."""
    if file := task_file(config.task):
        return own_factory(file), partial(from_file, config.task)
    factory = find_task(config.task).factory
    check_option_names(config.task, factory, config.task_options)
    return factory, factory


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
    names = ("cohort", "rate_multipliers", "seed", "lanes", "dispatch")
    own = {"local_steps": steps_of_clients(config, task), "availability": availability_of(config)}
    return {**{name: getattr(config, name) for name in names}, **own}
