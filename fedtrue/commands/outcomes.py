"""Tables of finished runs: three statistics per metric, under the names that tables and reports use."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from fedtrue.commands.answer import table
from fedtrue.reports.measures import Measure, mean_last_title, sort_measures
from fedtrue.reports.number_text import plural
from fedtrue.runner.exploded import exploded_text
from fedtrue.runner.records import LAST
from fedtrue.runner.summary import LastMean

Summary = Mapping[str, Any]


def measures_of(summaries: Sequence[Summary]) -> list[Measure]:
    """Every metric of these summaries, the one by which runs are compared first."""
    kinds = {
        f"{split}.{name}": summary["metrics"][name]
        for summary in summaries
        for split, metrics in summary["final"].items()
        for name in metrics
    }
    return sort_measures([Measure(key, **kind) for key, kind in kinds.items()])


def metrics_table(title: str, summary: Summary) -> Table:
    """The metrics of one run, one per row."""
    span = f"the last {LAST} rounds" if summary["rounds"] >= LAST else f"all {summary['rounds']} rounds"
    rows = [_metric_row(summary, measure) for measure in measures_of([summary])]
    columns = ["metric", "final", f"mean over {span}", "evaluations in them", "best", "after round"]
    return table(title, columns, rows, numeric=[False] + [True] * 5)


def _metric_row(summary: Summary, measure: Measure) -> list[str]:
    final, mean, best = _three_statistics(summary, measure)
    return [
        f"{measure.title}{measure.unit}",
        _number_text(final, measure),
        _number_text(mean["value"], measure),
        str(mean["evaluations"]),
        _number_text(best["value"], measure),
        str(best["round"] + 1),
    ]


def _three_statistics(summary: Summary, measure: Measure) -> list[Any]:
    return [statistic_of(summary, name, measure) for name in ("final", "mean_last", "best")]


def statistic_of(summary: Summary, statistic: str, measure: Measure) -> Any:
    """One statistic of one metric as the summary has it; None if it has none."""
    split, _, name = measure.key.rpartition(".")
    return summary.get(statistic, {}).get(split, {}).get(name)


def _number_text(value: float | None, measure: Measure) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.2f}" if measure.percent else f"{value:.6g}"


def rank_cells(summaries: Mapping[str, Summary], measure: Measure) -> list[str]:
    """The names of cells, best `mean_last` first; cells that have none or diverged are last, in their own order."""
    sign = -1 if measure.higher_is_better else 1
    values = {name: _ranking_value(summary, measure) for name, summary in summaries.items()}
    return sorted(summaries, key=lambda name: (values[name] is None, sign * (values[name] or 0.0)))


def _ranking_value(summary: Summary, measure: Measure) -> float | None:
    """`mean_last` of a run that has ended; None for others, because the value of a diverged run says nothing."""
    mean = statistic_of(summary, "mean_last", measure)
    if (
        summary["status"] not in ("finished", "stopped")
        or mean is None
        or mean["value"] is None
        or not math.isfinite(mean["value"])
    ):
        return None
    return float(mean["value"])


def cells_table(title: str, summaries: Mapping[str, Summary]) -> Table:
    """One row per cell of a sweep, the best first and marked."""
    measures = measures_of([summary for summary in summaries.values() if "final" in summary])
    columns = ["", "cell", "status", "rounds"]
    if not measures:
        rows = [["", name, _status(summary), summary["rounds"]] for name, summary in summaries.items()]
        return table(title, columns, rows)
    measure = measures[0]
    ranked = [summary for summary in summaries.values() if _ranking_value(summary, measure) is not None]
    mean_title = mean_last_title(measure, [LastMean(**statistic_of(s, "mean_last", measure)) for s in ranked])
    columns += [
        f"{heading}{measure.unit}" for heading in (mean_title, f"final {measure.title}", f"best {measure.title}")
    ]
    names = rank_cells(summaries, measure)
    marks = ["best" if ranked and index == 0 else "" for index in range(len(names))]
    rows = [[mark, *_cell_row(name, summaries[name], measure)] for mark, name in zip(marks, names)]
    return table(title, columns, rows, numeric=[False] * 3 + [True] * 4)


def _cell_row(name: str, summary: Summary, measure: Measure) -> list[Any]:
    row = [name, _status(summary), summary["rounds"]]
    if _ranking_value(summary, measure) is None:
        return [*row, "–", "–", "–"]
    final, mean, best = _three_statistics(summary, measure)
    return [*row, *(_number_text(number, measure) for number in (mean["value"], final, best["value"]))]


def _status(summary: Summary) -> str:
    return summary["status"] + (", exploded" if "exploded" in summary else "")


def exploded_lines(summaries: Mapping[str, Summary]) -> list[str]:
    """One line with the cure for the first run that has an exploded round; no line if none has."""
    exploded = {name: summary for name, summary in summaries.items() if "exploded" in summary}
    if not exploded:
        return []
    name, summary = next(iter(exploded.items()))
    line = f"{name}, " if name else ""
    line += exploded_text(summary["exploded"], summary.get("method"))
    return [line + (f" ({plural(len(exploded), 'cell')} have such rounds)" if len(exploded) > 1 else "")]
