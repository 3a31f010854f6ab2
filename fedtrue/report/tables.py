"""A table of runs: the settings that differ, means over seeds, the published number next to ours."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtrue.names import look_up
from fedtrue.report.labels import Group, as_text, differing, status, title
from fedtrue.report.measures import (
    Mean,
    MeanOfLast,
    Measure,
    best,
    chosen_measure,
    final,
    group_value,
    last_means,
    mean,
    mean_last_title,
    measures,
)
from fedtrue.report.targets import COSTS, Missed, cost_to, missed_text, spent, target_text
from fedtrue.runner.records import Run

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class Column:
    """A key for programs, a heading for people, how a group's cell is found and written."""

    key: str
    title: str
    value: Callable[[Group], Any]
    write: Callable[[Any], str] = as_text
    numeric: bool = False
    best: str = ""  # "highest" or "lowest", where there is a best


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]

    def values(self) -> list[list[Any]]:
        return [[column.value(group) for column in self.columns] for group in self.groups]

    def texts(self) -> list[list[str]]:
        return [[column.write(column.value(group)) for column in self.columns] for group in self.groups]


def table_of(
    groups: Sequence[Group],
    metric: str | None = None,
    columns: Sequence[str] | None = None,
    sort: str | None = None,
    *,
    target: float | None = None,
    winners: Sequence[str] | None = None,
) -> Table:
    """The columns asked for; else name, what differs, seeds, status if not all finished, measure, reference, costs.

    A metric's bare name, `test.accuracy`, is short for `mean_last.test.accuracy`, by which the paper compares.
    `target`: costs are those until the measure reaches it. `winners`: of each combination of these columns' values only
    the best row by `sort`, in the order of the runs.
    """
    runs = [run for group in groups for run in group.runs]
    measure = chosen_measure(runs, metric)
    known = {column.key: column for column in all_columns(groups, measure, target)}
    known |= {each.key: known[f"mean_last.{each.key}"] for each in measures(runs)}
    picked = tuple(_column(known, key) for key in columns or default_columns(groups, measure, target))
    by = _column(known, sort) if sort else None
    if winners:
        return Table(picked, tuple(winning(groups, [_column(known, key) for key in winners], by)))
    return Table(picked, tuple(sorted(groups, key=_order(by)) if by else groups))


def _column(known: Mapping[str, Column], key: str) -> Column:
    if key in COSTS and key not in known:
        raise ValueError(f"column {key!r} needs a value to reach: add --target, e.g. --target 0.5")
    return look_up("column", known, key)


def winning(groups: Sequence[Group], columns: Sequence[Column], by: Column | None) -> list[Group]:
    """Of each combination of the columns' values the best group, in the order in which the combinations are met.

    One with a seed that diverged is taken only where no other has a value: its settings are not ones to use.
    """
    if by is None or not by.best:
        instead = "" if by is None else f", and {by.key!r} has none"
        raise ValueError(f"--winners needs --sort by a column that has a best{instead}: e.g. --sort test.accuracy")
    order = _order(by)
    rank = lambda group: (_plain(by.value(group)) is None, "diverged" in group.status, order(group))
    combinations: dict[str, list[Group]] = {}
    for group in groups:
        combinations.setdefault(repr([column.value(group) for column in columns]), []).append(group)
    return [min(members, key=rank) for members in combinations.values()]


def _order(column: Column) -> Callable[[Group], Any]:
    """Best first where there is a best; numbers before words, nothing last."""

    def key(group: Group) -> Any:
        value = _plain(column.value(group))
        if value is None:
            return (2, 0.0, "")
        if isinstance(value, int | float):
            return (0, -value if column.best == "highest" else value, "")
        return (1, 0.0, as_text(value))

    return key


def _plain(value: Any) -> Any:
    """Without its deviation."""
    return value.value if isinstance(value, Mean | MeanOfLast | Missed) else value


def default_columns(groups: Sequence[Group], measure: Measure, target: float | None = None) -> list[str]:
    keys = ["run", *differing([group.settings for group in groups])]
    seeds = [group.seeds for group in groups]
    keys += ["seed"] if any(each != seeds[0] for each in seeds) or len(seeds[0]) > 1 else []
    keys += ["status"] if any(group.status != "finished" for group in groups) else []
    keys += [f"{statistic}.{measure.key}" for statistic in ("mean_last", "final", "best")]
    keys += ["reference", "difference"] if reference_applies(groups, measure) else []
    return [*keys, *(("rounds_done", "bytes", "seconds") if target is None else COSTS)]


def reference_applies(groups: Sequence[Group], measure: Measure) -> bool:
    """A published number belongs to the task's main measure, the first one; next to another it would mislead."""
    runs = [run for group in groups for run in group.runs]
    return any(group.reference is not None for group in groups) and measure == chosen_measure(runs)


def all_columns(groups: Sequence[Group], measure: Measure, target: float | None = None) -> list[Column]:
    """Every column that these runs can have."""
    runs = [run for group in groups for run in group.runs]
    settings = dict.fromkeys(key for group in groups for key in group.settings)
    return [
        Column("run", "run", lambda group: group.name),
        *map(_setting_column, settings),
        Column("seed", "seeds", lambda group: group.seeds, _seeds_text),
        Column("status", "status", lambda group: group.status),
        *(column for each in measures(runs) for column in _measure_columns(each, runs)),
        *_reference_columns(measure),
        *_cost_columns(),
        *(_target_columns(measure, target) if target is not None else []),
        Column("device", "device", lambda group: _origins(group, lambda origin: origin.get("devices", []))),
        Column("command", "command", lambda group: _origins(group, lambda origin: [origin.get("command", "")])),
        Column("commit", "commit", lambda group: _origins(group, lambda origin: [_commit(origin)])),
    ]


def _origins(group: Group, entries: Callable[[Any], Sequence[str]]) -> str:
    """What the runs' origins say, each thing once: devices, commands."""
    said = dict.fromkeys(entry for run in group.runs for entry in entries(run.origin))
    return "; ".join(entry.removeprefix("gpu:").removeprefix("cpu:") for entry in said)


def _commit(origin: Mapping[str, Any]) -> str:
    """Of the code that trained a run: 5b2f400, 5b2f400+ with uncommitted changes, or unknown."""
    commit = origin.get("commit") or "unknown"
    return commit[:7] + "+" * commit.endswith("+")


def _setting_column(key: str) -> Column:
    return Column(key, title(key), lambda group: group.settings.get(key))


def _measure_columns(measure: Measure, runs: Sequence[Run]) -> list[Column]:
    """The three statistics; the heading of the mean says over how many evaluations and rounds."""
    key, said, unit = measure.key, measure.title, measure.unit
    style: Any = {
        "write": lambda value: written(value, measure),
        "numeric": True,
        "best": "highest" if measure.higher_is_better else "lowest",
    }
    mean_title = mean_last_title(measure, last_means(runs, measure))
    return [
        Column(f"mean_last.{key}", f"{mean_title}{unit}", lambda group: group_value(group, measure), **style),
        Column(f"final.{key}", f"final {said}{unit}", lambda group: _over_seeds(group, final, measure), **style),
        Column(f"best.{key}", f"best {said}{unit}", lambda group: _over_seeds(group, best, measure), **style),
    ]


def _reference_columns(measure: Measure) -> list[Column]:
    return [
        Column("reference", "reference", lambda group: group.reference, _printed, numeric=True, best="highest"),
        Column("difference", "difference", lambda group: difference(group, measure), _signed, numeric=True),
    ]


def _cost_columns() -> list[Column]:
    rounds = lambda run: len(run.rounds.get("round", ()))
    return [
        Column(
            "rounds_done", "rounds done", lambda group: max(map(rounds, group.runs)), lambda value: f"{value:,}", True
        ),
        Column(
            "bytes",
            "traffic",
            lambda group: _mean_of(group, lambda run: spent(run, "bytes_up", "bytes_down")),
            lambda value: bytes_text(value.value) if value else "–",
            True,
        ),
        Column(
            "seconds",
            "time",
            lambda group: _mean_of(group, lambda run: spent(run, "seconds")),
            lambda value: duration_text(value.value) if value else "–",
            True,
        ),
    ]


def _target_columns(measure: Measure, target: float) -> list[Column]:
    """What it cost until the measure first reached the target."""
    goal = f"{measure.title} {target_text(target, measure)}"
    return [
        _target_column("rounds_to", f"rounds to {goal}", measure, target, lambda count: f"{count:,.0f}"),
        _target_column("bytes_to", f"traffic to {goal}", measure, target, lambda count: bytes_text(count, none="0 B")),
        _target_column("seconds_to", f"time to {goal}", measure, target, duration_text),
    ]


def _target_column(key: str, said: str, measure: Measure, target: float, write: Callable[[float], str]) -> Column:
    text = lambda cell: missed_text(cell) if isinstance(cell, Missed) else _with_deviation(cell, write)
    return Column(key, said, lambda group: cost_to(group, measure, target, key), text, numeric=True, best="lowest")


def _over_seeds(group: Group, value: Callable[[Run, Measure], float | None], measure: Measure) -> Mean | None:
    return mean([value(run, measure) for run in group.runs if status(run) != "diverged"])


def _mean_of(group: Group, value: Callable[[Run], float]) -> Mean | None:
    return mean([value(run) for run in group.runs])


def difference(group: Group, measure: Measure) -> float | None:
    """Our number − the published one, in percent where the measure is shown in percent."""
    ours = group_value(group, measure)
    if ours is None or group.reference is None:
        return None
    return ours.value * (100 if measure.percent else 1) - group.reference


def written(value: Mean | MeanOfLast | None, measure: Measure) -> str:
    """57.68 ± 0.12 of shares, in percent; 1.389 ± 0.012 of other numbers."""
    if value is None:
        return "–"
    if measure.percent:
        return _with_deviation(value, lambda part: f"{100 * part:.2f}")
    return _with_deviation(value, lambda part: f"{part:.4g}", lambda part: f"{part:.2g}")


def _with_deviation(
    value: Mean | MeanOfLast, write: Callable[[float], str], write_deviation: Callable[[float], str] | None = None
) -> str:
    return write(value.value) + ("" if value.deviation is None else f" ± {(write_deviation or write)(value.deviation)}")


def _printed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def _seeds_text(seeds: Sequence[Any]) -> str:
    return ", ".join(map(str, sorted(seeds))) if len(seeds) < 6 else f"{len(seeds)} seeds"


def bytes_text(count: float, none: str = "–") -> str:
    """1.23 MB, in powers of 1,000."""
    if count <= 0:
        return none
    power = min(int(math.log10(max(count, 1)) / 3 + 1e-9), len(UNITS) - 1)
    return f"{count / 1000**power:.3g} {UNITS[power]}"


def duration_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
