"""A table of runs: the settings that differ, means over seeds, the published number next to ours."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedtrue.names import look_up
from fedtrue.reports.column import Column, Table
from fedtrue.reports.differences import baselines, paired_difference
from fedtrue.reports.labels import Group, differing_settings, run_status, runs_of, setting_title
from fedtrue.reports.measures import (
    Measure,
    SeedMean,
    best_value,
    choose_measure,
    final_value,
    group_value,
    last_means,
    mean_last,
    mean_last_title,
    mean_over_seeds,
    measures,
)
from fedtrue.reports.number_text import (
    bytes_text,
    difference_text,
    duration_text,
    fixed_text,
    signed_text,
    value_text,
    with_deviation,
)
from fedtrue.reports.selection import COLUMNS as SELECTION_COLUMNS
from fedtrue.reports.selection import select_best
from fedtrue.reports.targets import COSTS, TargetMissed, cost_to, missed_text, target_text, total_over_rounds
from fedtrue.runner.records import Run

MAX_SEEDS_LISTED = 5  # more seeds are counted


def build_table(
    groups: Sequence[Group],
    metric: str | None = None,
    columns: Sequence[str] | None = None,
    sort: str | None = None,
    *,
    target: float | None = None,
    best_per: Sequence[str] | None = None,
    ranked: bool = False,
    against: Mapping[str, str] | None = None,
) -> Table:
    """A table with one row per group.

    Args:
        groups: the runs, grouped over seeds.
        metric: the measure to compare by (default: the first one that the runs have).
        columns: keys of columns (default: see `default_columns`). The bare name of a metric, `test.accuracy`, is short
            for `mean_last.test.accuracy`.
        sort: key of the column to sort by, best first.
        target: costs are those until the measure first reaches this value.
        best_per: keep only the best row by `sort` for each combination of the values of these columns, in order of
            first appearance. Columns of these rows only: how many were `tried`, their median (`median_tried`), and
            whose learning rate is the lowest or highest that was tried (`at_edge`).
        ranked: these rows best first, instead of in order of first appearance.
        against: settings of a baseline. After every chosen metric comes its difference from the row with these settings
            and, in the other columns of `best_per` (without it, in all other settings), those of the row itself.
    """
    runs = runs_of(groups)
    measure = choose_measure(runs, metric)
    available = {column.key: column for column in all_columns(groups, measure, target)}
    available |= {known.key: available[f"mean_last.{known.key}"] for known in measures(runs)}
    sort_column = _column(available, sort) if sort else None
    rows = sorted(groups, key=sort_column.sort_key) if sort_column else list(groups)
    if best_per:
        selection = select_best(groups, [_column(available, key) for key in best_per], sort_column)
        rows = selection.ranked if ranked else selection.chosen
        available |= {column.key: column for column in selection.columns()}
    chosen = tuple(_column(available, key) for key in columns or default_columns(groups, measure, target))
    if against:
        same = best_per or differing_settings([group.settings for group in groups])
        baseline_of = baselines(rows, against, [key for key in same if key not in against])
        chosen = tuple(shown for column in chosen for shown in _with_difference(column, against, baseline_of))
    return Table(chosen, tuple(rows))


def _with_difference(
    column: Column, against: Mapping[str, str], baseline_of: Callable[[Group], Group | None]
) -> list[Column]:
    """The column, and if it is a statistic of a metric, its difference from the baseline."""
    if column.of_run is None or column.measure is None:
        return [column]
    of_run, measure = column.of_run, column.measure
    title = f"difference from {_baseline_text(against)}, 95 % interval{measure.unit}"
    return [
        column,
        Column(
            f"difference.{column.key}",
            title,
            lambda group: paired_difference(group, baseline_of(group), of_run),
            lambda value: difference_text(value, measure),
            numeric=True,
            measure=measure,
        ),
    ]


def _baseline_text(against: Mapping[str, str]) -> str:
    """The values of the settings; of options that the baseline must not have only if there is nothing else."""
    given = [value for key, value in against.items() if value != "none" or "." not in key]
    return ", ".join(given or [f"no {setting_title(key)}" for key in against])


def _column(available: Mapping[str, Column], key: str) -> Column:
    if key in COSTS and key not in available:
        raise ValueError(f"column {key!r} needs a value to reach: add --target, e.g. --target 0.5")
    if key in SELECTION_COLUMNS and key not in available:
        raise ValueError(f"column {key!r} is of the best of several rows: add --best-per and --sort")
    return look_up("column", available, key)


def default_columns(groups: Sequence[Group], measure: Measure, target: float | None = None) -> list[str]:
    """Name, settings that differ, seeds, status unless all finished, the measure, the reference, costs."""
    keys = ["run", *differing_settings([group.settings for group in groups])]
    keys += [key for key in groups[0].over if _varies(groups, key)]
    keys += ["status"] if any(group.status != "finished" for group in groups) else []
    keys += [f"{statistic}.{measure.key}" for statistic in ("mean_last", "final", "best")]
    keys += ["reference", "difference"] if reference_applies(groups, measure) else []
    return [*keys, *costs_until(target)]


def costs_until(target: float | None) -> list[str]:
    """The columns of costs: total, or until the measure reaches a target."""
    return ["rounds_done", "bytes", "seconds"] if target is None else list(COSTS)


def reference_applies(groups: Sequence[Group], measure: Measure) -> bool:
    """Whether a published number can be shown: it belongs to the main measure of the task, which is the first one."""
    return any(group.reference is not None for group in groups) and measure == choose_measure(runs_of(groups))


def all_columns(groups: Sequence[Group], measure: Measure, target: float | None = None) -> list[Column]:
    """Every column that these runs can have."""
    runs = runs_of(groups)
    settings = dict.fromkeys(key for group in groups for key in group.settings)
    return [
        Column("run", "run", lambda group: group.name),
        *map(_setting_column, settings),
        *map(_repeated_column, groups[0].over),
        Column("status", "status", lambda group: group.status),
        *(column for known in measures(runs) for column in _measure_columns(known, runs)),
        *_reference_columns(measure),
        *_cost_columns(),
        *(_target_columns(measure, target) if target is not None else []),
        Column("device", "device", lambda group: _origin_texts(group, lambda origin: origin.get("devices", []))),
        Column("command", "command", lambda group: _origin_texts(group, lambda origin: [origin.get("command", "")])),
        Column("commit", "commit", lambda group: _origin_texts(group, lambda origin: [_commit(origin)])),
    ]


def _origin_texts(group: Group, entries: Callable[[Any], Sequence[str]]) -> str:
    """Entries of the runs' origins without repetition: devices, commands, commits."""
    unique = dict.fromkeys(entry for run in group.runs for entry in entries(run.origin))
    return "; ".join(entry.removeprefix("gpu:").removeprefix("cpu:") for entry in unique)


def _commit(origin: Mapping[str, Any]) -> str:
    """The commit that trained a run: 5b2f400, 5b2f400+ with uncommitted changes, or unknown."""
    commit = origin.get("commit") or "unknown"
    return commit[:7] + "+" * commit.endswith("+")


def _setting_column(key: str) -> Column:
    return Column(key, setting_title(key), lambda group: group.settings.get(key))


def _measure_columns(measure: Measure, runs: Sequence[Run]) -> list[Column]:
    """The three statistics; the heading of the mean tells over how many evaluations and rounds it is taken."""
    key, title, unit = measure.key, measure.title, measure.unit
    style: Any = {
        "to_text": lambda value: value_text(value, measure),
        "numeric": True,
        "best": "highest" if measure.higher_is_better else "lowest",
        "measure": measure,
    }
    mean_title = mean_last_title(measure, last_means(runs, measure))
    return [
        Column(
            f"mean_last.{key}",
            f"{mean_title}{unit}",
            lambda group: group_value(group, measure),
            of_run=lambda run: found.value if (found := mean_last(run, measure)) else None,
            **style,
        ),
        *(
            Column(
                f"{name}.{key}",
                f"{name} {title}{unit}",
                partial(_seed_mean, statistic=statistic, measure=measure),
                of_run=partial(statistic, measure=measure),
                **style,
            )
            for name, statistic in (("final", final_value), ("best", best_value))
        ),
    ]


def _seed_mean(group: Group, statistic: Callable[[Run, Measure], float | None], measure: Measure) -> SeedMean | None:
    """The mean over the seeds that did not diverge."""
    return mean_over_seeds([statistic(run, measure) for run in group.runs if run_status(run) != "diverged"])


def _reference_columns(measure: Measure) -> list[Column]:
    return [
        Column("reference", "reference", lambda group: group.reference, fixed_text, numeric=True),
        Column("difference", "difference", lambda group: difference(group, measure), signed_text, numeric=True),
    ]


def difference(group: Group, measure: Measure) -> float | None:
    """Our number − the published one, in percent if the measure is shown in percent."""
    ours = group_value(group, measure)
    if ours is None or group.reference is None:
        return None
    return ours.value * (100 if measure.percent else 1) - group.reference


def _cost_columns() -> list[Column]:
    rounds_done = lambda group: max(run.rounds_done for run in group.runs)
    total = lambda *names: lambda group: mean_over_seeds([total_over_rounds(run, *names) for run in group.runs])
    mean_text = lambda to_text: lambda mean: to_text(mean.value) if mean else "–"
    return [
        Column("rounds_done", "rounds done", rounds_done, lambda count: f"{count:,}", numeric=True),
        Column("bytes", "traffic", total("bytes_up", "bytes_down"), mean_text(bytes_text), numeric=True),
        Column("seconds", "time", total("seconds"), mean_text(duration_text), numeric=True),
    ]


def _target_columns(measure: Measure, target: float) -> list[Column]:
    """The costs until the measure first reached the target."""
    goal = f"{measure.title} {target_text(target, measure)}"
    return [
        _target_column("rounds_to", f"rounds to {goal}", measure, target, lambda count: f"{count:,.0f}"),
        _target_column("bytes_to", f"traffic to {goal}", measure, target, lambda count: bytes_text(count, none="0 B")),
        _target_column("seconds_to", f"time to {goal}", measure, target, duration_text),
    ]


def _target_column(key: str, title: str, measure: Measure, target: float, to_text: Callable[[float], str]) -> Column:
    cell_text = lambda cell: missed_text(cell) if isinstance(cell, TargetMissed) else with_deviation(cell, to_text)
    cost = lambda group: cost_to(group, measure, target, key)
    return Column(key, title, cost, cell_text, numeric=True, best="lowest")


def _repeated_column(key: str) -> Column:
    """The values of a setting over which runs are averaged."""
    plural = "seeds" if key == "seed" else "values"
    title = plural if key == "seed" else setting_title(key)
    return Column(key, title, lambda group: group.repeats(key), lambda values: _list_text(values, plural))


def _varies(groups: Sequence[Group], key: str) -> bool:
    """Whether runs differ in it. Several runs with the same seed, and no other difference, are shown too."""
    values = [group.repeats(key) for group in groups]
    return (
        any(other != values[0] for other in values)
        or len(set(map(str, values[0]))) > 1
        or (len(values[0]) > 1 and len(groups[0].over) == 1)
    )


def _list_text(values: Sequence[Any], plural: str) -> str:
    are_numbers = all(isinstance(value, int | float) for value in values)
    in_order = sorted(values, key=None if are_numbers else str)
    return ", ".join(map(str, in_order)) if len(values) <= MAX_SEEDS_LISTED else f"{len(values)} {plural}"
