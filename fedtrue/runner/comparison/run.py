"""The stages of a comparison, each an ordinary sweep in its own folder: learning rates first, then seeds.

OUT/tuning.toml, OUT/tuning/   every method with its grid of learning rates, compared on held-out data, seed 0 …
OUT/seeds.toml, OUT/seeds/     every method with the learning rates that were best there, the next seeds 1, 2, 3 …

Runs may repeat over another setting than the seed, such as the seed of a split.

A comparison that was interrupted goes on with the same command: cells that have ended are not trained again.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from fedtrue.algorithm.checks import check_int
from fedtrue.engine.capacity import lane_bytes, memory_bytes
from fedtrue.files import write_atomically
from fedtrue.precision import float64
from fedtrue.runner.build import load_task, task_factory
from fedtrue.runner.comparison.contenders import Contender, Refused, cell_settings, contenders, refusal
from fedtrue.runner.comparison.rates import any_rates, at_edge, trials_of
from fedtrue.runner.comparison.setting import SEED
from fedtrue.runner.records import SWEEP, TUNING
from fedtrue.runner.settings import RunConfig, check_names, set_one
from fedtrue.runner.stop import Stop, Stopped
from fedtrue.runner.summary import read_outcome
from fedtrue.runner.sweep.cells import read_sweep
from fedtrue.runner.sweep.run import prepare, run_groups
from fedtrue.runner.toml import to_toml
from fedtrue.spec import from_spec, option_table
from fedtrue.tasks.own_file import task_file
from fedtrue.tasks.task import Task

VALIDATION = 0.1  # the fraction of clients or examples that is held out where the task has no validation data
EVALUATIONS = 20  # per run, where the settings say nothing
GOES_ON = "the same command, or call of ft.compare, goes on with the comparison in"
HEADER = "# Written by fedtrue compare; `fedtrue sweep` trains it too.\n"

TrainSweep = Callable[[Path, Path], None]  # (sweep file, folder of its cells)


class Chosen(NamedTuple):
    """A method with its learning rates."""

    contender: Contender
    rates: dict[str, float]  # {"client": …, "server": …}
    value: float  # of the metric by which they were chosen
    median: float  # of that metric over all trials, those that diverged counted as worst: how much the rates matter
    at_edge: list[str]  # of these rates, those that are the lowest or highest that was tried
    trials: int  # learning rates that were tried
    diverged: int  # of these, those with a run that diverged
    lane_bytes: int  # held by a client while it trains
    kept_bytes: int  # kept by a client between rounds


@dataclass(frozen=True)
class Comparison:
    """What was compared, with which learning rates, and where its runs are."""

    out: Path
    chosen_by: str  # the metric by which learning rates were chosen: "validation.accuracy"
    chosen: list[Chosen]
    refused: list[Refused]
    diverged: list[str]  # methods of which no learning rate gave a finite result
    over: str = SEED  # the setting in which the runs of a method differ
    tuning_seeds: int = 1  # values of that setting on which learning rates were chosen: 0, 1, …

    @property
    def runs(self) -> Path:
        """The folder of the runs with the chosen learning rates."""
        return self.out / "seeds"


def train_sweep(file: Path, out: Path) -> None:
    """Trains the cells that have not ended."""
    _, groups = prepare(file, out)
    run_groups(groups, out, None, Stop(), lambda name, lines: None, lambda line: None)


def compare_methods(
    config: RunConfig,
    out: Path,
    *,
    budget: int,
    seeds: int,
    methods: Sequence[str] | None,
    over: str = SEED,
    tuning_seeds: int = 1,
    train: TrainSweep = train_sweep,
) -> Comparison:
    """Both stages, as far as they have not been trained; `config` has the setting, without a method."""
    check_int("budget", budget, low=1)
    check_int("seeds", seeds, low=1)
    check_int("tuning_seeds", tuning_seeds, low=1)
    found = contenders(methods)
    config, task, split = comparable(config)
    with float64(task.float64):
        refusals = {each.label: refusal(each, config, task) for each in found}
    taking_part = [each for each in found if refusals[each.label] is None]
    if not taking_part:
        raise ValueError(f"no method can run in this setting: {next(filter(None, refusals.values())).reason}")
    tried = [(each, rates) for each in taking_part for rates in trials_of(each.spec, budget)]
    set_one(config, over, 0, "over")  # refuses a setting that does not exist
    cells = [cell_settings(*trial) for trial in tried]
    folder = _stage(out, TUNING, config, cells, {over: list(range(tuning_seeds))}, train)
    metric, chosen, diverged = _choose(folder, tried, split, budget, task)
    if chosen:
        cells = [cell_settings(each.contender, each.rates) for each in chosen]
        _stage(out, "seeds", config, cells, {over: list(range(tuning_seeds, tuning_seeds + seeds))}, train)
    refused = [reason for reason in refusals.values() if reason]
    return Comparison(out, metric, chosen, refused, diverged, over, tuning_seeds)


def comparable(config: RunConfig) -> tuple[RunConfig, Task, str]:
    """The settings with validation data, the task, and the split on which learning rates are chosen.

    A task without validation data gets some: by its own option `validation`, else clients that never train (the split
    `unseen`). A quadratic has nothing to hold out: its own objective is evaluated at the server's weights. Other tasks,
    such as one of a single client, are compared by their train loss, the mean along local steps.
    """
    check_names(config)
    if file := task_file(config.task):
        config = replace(config, task=str(file))
    task = load_task(config)
    takes = option_table(task_factory(config)[0])
    for option, value in (("validation", VALIDATION), ("evaluate", True)):
        if task.validation is None and option in takes and option not in config.task_options:
            config = replace(config, task_options={**config.task_options, option: value})
            task = load_task(config)
    can_hold_out = not hasattr(task, "minimiser") and len(task.train) > 1
    if task.validation is None and task.unseen is None and can_hold_out:
        config = replace(config, holdout_clients=VALIDATION)
        task = load_task(config)
    split = "validation" if task.validation is not None else "unseen" if task.unseen is not None else "train"
    rounds = check_int("rounds", task.rounds if config.rounds is None else config.rounds, low=1)
    if config.evaluate_every is None and task.held_out_splits:
        config = replace(config, evaluate_every=max(1, rounds // EVALUATIONS))
    return replace(config, rounds=rounds), task, split


def _stage(
    out: Path,
    name: str,
    config: RunConfig,
    cells: Sequence[Mapping[str, Any]],
    product: Mapping[str, Sequence[int]],
    train: TrainSweep,
) -> Path:
    """Writes the sweep's file and trains it; the folder of its cells."""
    settings = {key: value for key, value in config.settings().items() if key not in (*product, "label", "reference")}
    table = {**settings, "sweep": {"product": product, "cells": list(cells)}}
    file, text = out / f"{name}.toml", (HEADER + to_toml(table)).encode()
    if file.exists() and file.read_bytes() != text:
        raise ValueError(f"{out} holds another comparison: give another out, or the settings of {file}")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"round \d+: every client's update")  # the table counts what diverged
        try:
            train(file, out / name)
        except Stopped as stopped:
            raise stopped.with_cure(f"{GOES_ON} {out}") from None
    return out / name


def _choose(
    folder: Path, tried: Sequence[tuple[Contender, dict[str, float]]], split: str, budget: int, task: Task
) -> tuple[str, list[Chosen], list[str]]:
    """The metric, the best learning rates of every method by it, and the methods that have none.

    The value of a trial is the mean over its runs, infinite if one of them has diverged.
    """
    summaries = [read_outcome(folder / cell.name) or {} for cell in read_sweep(folder / SWEEP)]
    metric, sign = _first_metric(summaries, split)
    by_label: dict[str, list[tuple[float, dict[str, float]]]] = {each.label: [] for each, _ in tried}
    count = len(summaries) // len(tried)  # runs per trial; they are next to each other
    runs_of_trials = [summaries[first : first + count] for first in range(0, len(summaries), count)]
    for (contender, rates), runs in zip(tried, runs_of_trials, strict=True):
        by_label[contender.label].append((fmean(_loss(summary, split, metric, sign) for summary in runs), rates))
    chosen, diverged = [], []
    for contender in {each.label: each for each, _ in tried}.values():
        values = by_label[contender.label]
        loss, rates = min(values, key=lambda entry: entry[0])
        if not math.isfinite(loss):
            diverged.append(contender.label)
            continue
        edges, failed = at_edge(contender.spec, rates, budget), sum(not math.isfinite(value) for value, _ in values)
        middle = sign * median(value for value, _ in values)
        trials = (edges, len(values), failed)
        chosen.append(Chosen(contender, rates, sign * loss, middle, *trials, *_memory(contender, task)))
    return f"{split}.{metric}", chosen, diverged


def _first_metric(summaries: Sequence[Mapping[str, Any]], split: str) -> tuple[str, int]:
    """The metric by which runs are compared on this split, and the sign that makes lower better."""
    kinds = {
        name: summary["metrics"][name]["higher_is_better"]
        for summary in summaries
        for name in summary.get("final", {}).get(split, {})
    }
    if not kinds:
        raise ValueError(f"no run has recorded a metric on {split!r}: give more rounds")
    name = min(kinds, key=lambda name: (not kinds[name], name != "loss"))
    return name, -1 if kinds[name] else 1


def _loss(summary: Mapping[str, Any], split: str, metric: str, sign: int) -> float:
    """The mean of the evaluations in the last 100 rounds, lower is better; infinite for a run that has diverged."""
    found = summary.get("mean_last", {}).get(split, {}).get(metric, {}).get("value")
    failed = found is None or not math.isfinite(found) or summary["status"] == "diverged"
    return math.inf if failed else sign * float(found)


def _memory(contender: Contender, task: Task) -> tuple[int, int]:
    with float64(task.float64):
        method = from_spec(any_rates(contender.spec))
        return lane_bytes(task, method), memory_bytes(task, method)
