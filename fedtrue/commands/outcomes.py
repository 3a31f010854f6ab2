"""Runs that have ended, in numbers: three statistics of every metric, under the names that tables and reports use."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from fedtrue.commands.answer import table
from fedtrue.report.measures import Measure, in_order, mean_last_title
from fedtrue.runner.records import LAST
from fedtrue.runner.summary import LastMean

Summary = Mapping[str, Any]


def measures_of(summaries: Sequence[Summary]) -> list[Measure]:
    """Every metric that one of them has, the one by which runs are compared first."""
    kinds = {
        f"{split}.{name}": summary["metrics"][name]
        for summary in summaries
        for split, metrics in summary["final"].items()
        for name in metrics
    }
    return in_order([Measure(key, **kind) for key, kind in kinds.items()])


def outcome_table(title: str, summary: Summary) -> Table:
    """A run's metrics, one per row."""
    span = f"the last {LAST} rounds" if summary["rounds"] >= LAST else f"all {summary['rounds']} rounds"
    rows = [_metric_row(summary, measure) for measure in measures_of([summary])]
    columns = ["metric", "final", f"mean over {span}", "evaluations in them", "best", "after round"]
    return table(title, columns, rows, numeric=[False] + [True] * 5)


def _metric_row(summary: Summary, measure: Measure) -> list[str]:
    final, mean, best = (leaf(summary, statistic, measure) for statistic in ("final", "mean_last", "best"))
    return [
        f"{measure.title}{measure.unit}",
        _text(final, measure),
        _text(mean["value"], measure),
        str(mean["evaluations"]),
        _text(best["value"], measure),
        str(best["round"] + 1),
    ]


def leaf(summary: Summary, statistic: str, measure: Measure) -> Any:
    """One statistic of one metric, as the summary has it; None where it has none."""
    split, _, name = measure.key.rpartition(".")
    return summary.get(statistic, {}).get(split, {}).get(name)


def _text(value: float | None, measure: Measure) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.2f}" if measure.percent else f"{value:.6g}"


def best_first(outcomes: Mapping[str, Summary], measure: Measure) -> list[str]:
    """The names, the best `mean_last` first; those that have none, or diverged, last and in their own order."""
    sign = -1 if measure.higher_is_better else 1
    value = {name: _compared(summary, measure) for name, summary in outcomes.items()}
    order = lambda name: (value[name] is None, sign * (value[name] or 0.0))
    return sorted(outcomes, key=order)


def _compared(summary: Summary, measure: Measure) -> float | None:
    """What a run is ranked by: what a diverged run reached says nothing."""
    found = leaf(summary, "mean_last", measure)
    known = found is not None and found["value"] is not None and math.isfinite(found["value"])
    return found["value"] if known and summary["status"] == "finished" else None


def compared_table(title: str, outcomes: Mapping[str, Summary]) -> Table:
    """Runs below each other, the best first and marked."""
    measures = measures_of([summary for summary in outcomes.values() if "final" in summary])
    head, measure = ["", "cell", "status", "rounds"], measures[0] if measures else None
    if measure is None:
        return table(title, head, [["", name, each["status"], each["rounds"]] for name, each in outcomes.items()])
    counted = [each for each in outcomes.values() if _compared(each, measure) is not None]
    mean_title = mean_last_title(measure, [LastMean(**leaf(each, "mean_last", measure)) for each in counted])
    said, unit = measure.title, measure.unit
    columns = [*head, f"{mean_title}{unit}", f"final {said}{unit}", f"best {said}{unit}"]
    names = best_first(outcomes, measure)
    marks = ["best" if counted and place == 0 else "" for place in range(len(names))]
    rows = [[mark, *_run_row(name, outcomes[name], measure)] for mark, name in zip(marks, names)]
    return table(title, columns, rows, numeric=[False] * 3 + [True] * 4)


def _run_row(name: str, summary: Summary, measure: Measure) -> list[Any]:
    row = [name, summary["status"], summary["rounds"]]
    if _compared(summary, measure) is None:
        return [*row, "–", "–", "–"]
    final, mean, best = (leaf(summary, statistic, measure) for statistic in ("final", "mean_last", "best"))
    return [*row, _text(mean["value"], measure), _text(final, measure), _text(best["value"], measure)]
