"""`fedtrue compare`."""

import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedtrue.commands.answer import Answer, printer, table
from fedtrue.commands.sweeping import LiveCells
from fedtrue.commands.training import parse_settings, stderr_printer
from fedtrue.engine.devices import use_all_cores_unless_set
from fedtrue.reports.canvas import check_format
from fedtrue.reports.comparison import ComparisonTable, comparison_table, remarks
from fedtrue.reports.difference_picture import draw_differences
from fedtrue.runner.comparison.contenders import split_methods
from fedtrue.runner.comparison.run import compare_methods
from fedtrue.runner.comparison.setting import compared_config
from fedtrue.runner.stop import Stop
from fedtrue.runner.sweep.run import prepare, run_groups
from fedtrue.tasks.own_file import task_file


def compare(options: Namespace) -> Answer:
    check_format("--picture", options.picture)
    use_all_cores_unless_set()
    settings = parse_settings(options.settings)
    config = compared_config(options.task, options.rounds, settings, over=options.over, where="--set")
    out = options.out or Path("runs") / f"compare-{_short_name(options.task)}"
    say = stderr_printer(options.json)

    def train(file: Path, folder: Path) -> None:
        cells, groups = prepare(file, folder)
        say(f"{file}: {len(cells)} runs, {len(cells) - sum(len(group) for _, group in groups)} of them have ended")
        with Stop() as stop, LiveCells(cells, folder) if not options.json else nullcontext() as live:
            run_groups(groups, folder, None, stop, live.watch if live else lambda name, lines: None, say)

    methods = split_methods(options.methods)
    comparison = compare_methods(
        config,
        out,
        budget=options.budget,
        seeds=options.seeds,
        methods=methods,
        over=options.over,
        tuning_seeds=options.tuning_seeds,
        train=train,
    )
    found = comparison_table(comparison, options.target)
    if options.picture is not None:
        draw_differences(found.results, options.picture)
    return Answer(document(found), lambda: _show(found, options.markdown))


def _short_name(task: str) -> str:
    file = task_file(task)
    return file.path.stem if file else Path(task).stem


def document(found: ComparisonTable) -> dict[str, Any]:
    """All numbers, for `--json`."""
    comparison = found.comparison
    return {
        "out": str(comparison.out),
        "chosen_by": comparison.chosen_by,
        "methods": found.rows,
        "diverged": comparison.diverged,
        "refused": [refused._asdict() for refused in comparison.refused],
    }


def _show(found: ComparisonTable, markdown: bool) -> None:
    if markdown:
        sys.stdout.write(found.markdown)
        return
    folder = found.comparison.out
    shown = [
        table(title, [column.title for column in of.columns], of.texts(), [column.numeric for column in of.columns])
        for title, of in found.tables.items()
    ]
    printer(*shown, *remarks(found.comparison), f"curves and heat maps: fedtrue report {folder} -o report.html")()
