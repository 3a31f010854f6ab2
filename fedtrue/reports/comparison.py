"""`ft.compare`: a fair comparison of methods on one task, and its table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtrue.reports.column import Column, Table
from fedtrue.reports.labels import group_runs, runs_of, setting_text
from fedtrue.reports.measures import Measure, SeedMean, choose_measure
from fedtrue.reports.number_text import bytes_text, plural, value_text
from fedtrue.reports.table_formats import to_markdown, to_records
from fedtrue.reports.tables import build_table, costs_until
from fedtrue.reports.targets import check_target
from fedtrue.runner.comparison.contenders import BASELINE
from fedtrue.runner.comparison.run import Chosen, Comparison, compare_methods
from fedtrue.runner.comparison.setting import SEED, compared_config
from fedtrue.runner.records import find_runs, read_run

BUDGET, SEEDS, TUNING_SEEDS = 24, 3, 1


@dataclass(frozen=True, repr=False)
class ComparisonTable:
    """A comparison and its tables, the best method first; all of them have the same rows."""

    comparison: Comparison  # the chosen learning rates, the methods that were refused or diverged
    results: Table  # the metric, the differences from FedAvg, the chosen learning rates
    costs: Table  # rounds, bytes and seconds, memory of a client
    trials: Table  # what the choice of learning rates was like

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by title."""
        return {"results": self.results, "costs": self.costs, "trials of learning rates": self.trials}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict per method that has results, with raw numbers."""
        columns = {column.key: column for table in self.tables.values() for column in table.columns}
        return to_records(Table(tuple(columns.values()), self.results.groups))

    @property
    def markdown(self) -> str:
        """The tables as Markdown, and lines about what they do not show."""
        tables = "\n".join(map(to_markdown, self.tables.values()))
        return tables + "".join(f"\n{line}\n" for line in remarks(self.comparison))

    def __repr__(self) -> str:
        return f"ComparisonTable({plural(len(self.results.groups), 'method')} in {self.comparison.out})"


def compare(
    task: str | Path,
    out: str | Path,
    *,
    budget: int = BUDGET,
    seeds: int = SEEDS,
    methods: Sequence[str] | None = None,
    rounds: int | None = None,
    target: float | None = None,
    settings: Mapping[str, Any] | None = None,
    over: str = SEED,
    tuning_seeds: int = TUNING_SEEDS,
) -> ComparisonTable:
    """Compare methods on a task: the same budget of learning rates for each, chosen on validation, then several seeds.

    Args:
        task: the name of a task, the TOML file of a run (its method and seed are not used), or a task as FILE.py:NAME.
        out: the folder for all runs; with the same arguments an interrupted comparison goes on.
        budget: learning rates to try per method.
        seeds: runs per method with the chosen learning rates, seeds 1, 2, 3 …
        methods: names of methods, or calls such as "fedopt(client=adam)"; FedAvg is always among them. Without it, a
            dozen; ["all"] for all.
        rounds: of every run; without it, the task's.
        target: show the rounds, bytes and seconds until the metric reaches this value.
        settings: other settings of the runs, by dotted key, e.g. {"cohort": 10}. Those of a method are given with it:
            methods=["fedprox(mu=0.5)"].
        over: the setting in which the runs of a method differ; without it, the seed. Another one is, for example,
            "task_options.seed", the seed of a split.
        tuning_seeds: choose learning rates by the mean over so many seeds 0, 1 … (or values of `over`); the next ones
            are reported. With one, a rate that diverges with other seeds may be chosen.

    Returns:
        The tables (`.markdown`, `.rows`), and the choices behind them (`.comparison`).

    >>> import tempfile, fedtrue as ft
    >>> found = ft.compare("quadratic", tempfile.mkdtemp() + "/out", budget=2, seeds=1, methods=["fedprox"], rounds=5)
    >>> sorted(row["run"] for row in found.rows)
    ['fedavg', 'fedprox']
    """
    config = compared_config(str(task), rounds, settings or {}, over=over)
    how: dict[str, Any] = {"methods": methods, "over": over, "tuning_seeds": tuning_seeds}
    return comparison_table(compare_methods(config, Path(out), budget=budget, seeds=seeds, **how), target)


def comparison_table(comparison: Comparison, target: float | None = None) -> ComparisonTable:
    """The tables of the runs with the chosen learning rates."""
    if not comparison.chosen:
        raise ValueError(
            f"all runs of {', '.join(comparison.diverged)} diverged: give smaller learning rates as options, e.g. "
            '--methods "fedavg(client_rate=0.001)"'
        )
    groups = group_runs([read_run(path) for path in find_runs([comparison.runs])], _repeated(comparison))
    runs = runs_of(groups)
    measure, chosen_by = choose_measure(runs), choose_measure(runs, comparison.chosen_by)
    check_target(target, measure, "--target")
    statistic = f"mean_last.{measure.key}"
    status = ["status"] if any(group.status != "finished" for group in groups) else []
    has_baseline = any(each.contender.label == BASELINE for each in comparison.chosen)
    found = build_table(
        groups,
        measure.key,
        ["run", *status, statistic],
        sort=statistic,
        target=target,
        best_per=["run"],  # keeps every row, and pairs it with the baseline whatever its other settings are
        ranked=True,
        against={"method": BASELINE} if has_baseline and len(groups) > 1 else None,
    )
    costs = build_table(groups, measure.key, costs_until(target), target=target)
    chosen, run = {each.contender.label: each for each in comparison.chosen}, found.columns[0]
    return ComparisonTable(
        comparison,
        Table((*found.columns, *_rate_columns(chosen)), found.groups),
        Table((run, *costs.columns, *_memory_columns(chosen)), found.groups),
        Table((run, *_trial_columns(chosen, chosen_by)), found.groups),
    )


def _repeated(comparison: Comparison) -> list[str]:
    """The settings over which runs are averaged and paired."""
    return list(dict.fromkeys([SEED, comparison.over]))


def _rate_columns(chosen: Mapping[str, Chosen]) -> list[Column]:
    rate = lambda kind: lambda group: chosen[group.name].rates.get(kind)
    return [
        Column("client_rate", "client rate", rate("client"), numeric=True),
        Column("server_rate", "server rate", rate("server"), numeric=True),
    ]


def _trial_columns(chosen: Mapping[str, Chosen], measure: Measure) -> list[Column]:
    """What the trials of a method were like: how much its learning rates matter."""
    number = lambda name: lambda group: getattr(chosen[group.name], name)
    finite = lambda name: lambda group: value if math.isfinite(value := number(name)(group)) else None
    text = lambda value: value_text(None if value is None else SeedMean(value, None, 1), measure)
    diverged = lambda group: f"{number('diverged')(group)} of {number('trials')(group)}"
    return [
        Column("best_trial", f"best trial: {measure.title}{measure.unit}", finite("value"), text, numeric=True),
        Column("median_trial", "median trial", finite("median"), text, numeric=True),
        Column("diverged", "trials that diverged", diverged, numeric=True),
        Column("at_edge", "rates at the edge", lambda group: chosen[group.name].at_edge, _edge_text),
    ]


def _edge_text(kinds: Sequence[str]) -> str:
    return ", ".join(kinds) if kinds else setting_text(None)


def _memory_columns(chosen: Mapping[str, Chosen]) -> list[Column]:
    size = lambda name: lambda group: getattr(chosen[group.name], name)
    return [
        Column("lane_bytes", "memory of a client in training", size("lane_bytes"), bytes_text, numeric=True),
        Column("kept_bytes", "kept per client", size("kept_bytes"), bytes_text, numeric=True),
    ]


def remarks(comparison: Comparison) -> list[str]:
    """What the tables do not show: how rates were chosen, and the methods without a row."""
    edges = [each.contender.label for each in comparison.chosen if each.at_edge]
    tuned_at = "0" if comparison.tuning_seeds == 1 else f"0 to {comparison.tuning_seeds - 1}"
    how = f"by {comparison.chosen_by}, the mean of the last 100 rounds, at {comparison.over} {tuned_at}"
    lines = [f"Learning rates were chosen {how}."]
    if comparison.chosen_by.startswith("train."):
        lines.append("The task has nothing to hold out: a train loss along local steps favours large client rates.")
    if edges:
        lines.append(f"At the edge of its grid, where a better rate may lie outside: {', '.join(edges)}.")
    lines += [f"Diverged with every learning rate: {label}." for label in comparison.diverged]
    lines += [f"Refused: {refused.label}: {refused.reason}." for refused in comparison.refused]
    return lines
