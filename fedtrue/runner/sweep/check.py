"""Refuses cells whose settings do not fit their task, before anything of their sweep is written or compiled."""

from pathlib import Path

from fedtrue.algorithm.checks import check_int
from fedtrue.engine.planning import plan_simulation
from fedtrue.precision import float64
from fedtrue.runner.build import simulation_arguments
from fedtrue.runner.callbacks.calls import Calls
from fedtrue.runner.callbacks.from_settings import callbacks_of
from fedtrue.runner.host_schedule import HostSchedule
from fedtrue.runner.settings import RunConfig
from fedtrue.runner.sweep.cells import Cell
from fedtrue.runner.warm_start import starting_weights
from fedtrue.spec import from_spec
from fedtrue.tasks.task import Task


def check_cell(task: Task, cell: Cell, out: Path) -> None:
    """The settings that cells of one program share; `cell` has all of them filled in."""
    config = cell.config
    calls_of(task, cell, out)
    check_int("seed", config.seed, high=2**32 - 1)
    if config.dispatch not in (None, "round"):
        raise ValueError(f"dispatch {config.dispatch!r} is for single runs: use 'round' for runs that train together")
    arguments = simulation_arguments(config, task)
    with float64(task.float64):
        names = ("cohort", "local_steps", "lanes")
        plan_simulation(task, from_spec(config.method), **{name: arguments[name] for name in names})
        task.multipliers_of_clients(config.rate_multipliers)
        if config.start is not None:
            starting_weights(config.start, task)


def calls_of(task: Task, cell: Cell, out: Path) -> Calls:
    """The callbacks of a cell; wrong ones are refused."""
    calls = Calls(callbacks_of(cell.config, out / cell.name), cell.config.settings())
    calls.check(task, schedule_of(cell.config))
    return calls


def schedule_of(config: RunConfig) -> HostSchedule:
    """When a cell is evaluated and saved."""
    return HostSchedule(config.rounds or 0, config.evaluate_every, config.checkpoint_every)
