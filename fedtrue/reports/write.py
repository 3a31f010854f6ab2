"""Writing the report of some runs."""

from collections.abc import Sequence
from pathlib import Path

from fedtrue.reports.measures import choose_measure
from fedtrue.reports.page import report_page
from fedtrue.reports.targets import check_target
from fedtrue.runner.records import Run, find_runs, read_run


def report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    metric: str | None = None,
    threshold: float | None = None,
) -> Path:
    """One HTML page of runs: curves, learning-rate heat maps, tables. It needs no network and no other file.

    Args:
        runs: run folders, archives, or folders that hold some.
        out: the page.
        title: its heading; without it, the tasks' names.
        metric: e.g. "test.accuracy"; without it, the first that the runs have.
        threshold: what a heat map's cells are counted above.

    Returns:
        The page's path.
    """
    paths = [runs] if isinstance(runs, str | Path) else runs
    found = [read_run(path) for path in find_runs([Path(path) for path in paths])]
    return write_report(found, Path(out), title, metric, threshold)


def write_report(
    runs: Sequence[Run], target: Path, title: str | None, metric: str | None, threshold: float | None
) -> Path:
    """The page of runs that have been read."""
    measure = choose_measure(runs, metric)
    check_target(threshold, measure, "threshold")
    text = report_page(runs, target, title=title, metric=measure.key, threshold=threshold)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target
