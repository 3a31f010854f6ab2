"""peers.json → the tables of docs/benchmarks.md, between its two markers."""

import re
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from measure import WARM_UP

BEGIN, END = "<!-- peers.json, by bench.py --table -->", "<!-- end of peers.json -->"
COLUMNS = ("", "s per round", "each pass", "÷ fedtrue", "examples/s", "start, s", "peak MB", "weights differ by")
Record = dict[str, Any]


def tables(results: Record, titles: Mapping[str, str]) -> str:
    """The results as Markdown: the machine, then one table per workload, with rows in the order of `titles`."""
    runs = [run for run in results["runs"] if len(run["seconds"]) > WARM_UP]
    versions = {name: number for run in runs for name, number in run["versions"].items()}
    machine, dates = results["machine"], sorted({run["date"] for run in runs})
    lines = [
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {machine['system']}, "
        f"Python {machine['python']}; {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}. "
        + ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
        + "."
    ]
    for workload in dict.fromkeys(run["workload"] for run in runs):
        of_framework = {
            framework: [run for run in runs if (run["framework"], run["workload"]) == (framework, workload)]
            for framework in titles
        }
        lines += ["", f"### {workload}", "", _row(COLUMNS), _row(["---"] + ["---:"] * (len(COLUMNS) - 1))]
        base = round_seconds(of_framework["fedtrue"]) if of_framework.get("fedtrue") else None
        lines += [_row(_cells(titles[framework], found, base)) for framework, found in of_framework.items() if found]
    return "\n".join(lines)


def round_seconds(runs: list[Record]) -> float:
    """The median over the measured rounds of all passes."""
    return median(second for run in runs for second in run["seconds"][WARM_UP:])


def start_seconds(run: Record) -> float:
    """The time of the warm-up rounds beyond their usual time: compilation, or the start of Ray."""
    seconds_per_example = sum(run["seconds"][WARM_UP:]) / sum(run["examples"][WARM_UP:])
    return max(0.0, sum(run["seconds"][:WARM_UP]) - seconds_per_example * sum(run["examples"][:WARM_UP]))


def into_page(page: str, text: str) -> str:
    """The page with the text between its markers."""
    if BEGIN not in page or END not in page:
        raise SystemExit(f"docs/benchmarks.md has no markers: add the lines {BEGIN} and {END}")
    between = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    return between.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page)


def _cells(title: str, runs: list[Record], base: float | None) -> list[str]:
    seconds = round_seconds(runs)
    speed = median(sum(run["examples"][WARM_UP:]) / sum(run["seconds"][WARM_UP:]) for run in runs)
    return [
        title,
        f"{seconds:.3f}",
        ", ".join(f"{round_seconds([run]):.3f}" for run in sorted(runs, key=lambda run: run["pass"])),
        f"{seconds / base:.2f}" if base else "",
        f"{speed:,.0f}",
        f"{median(map(start_seconds, runs)):.1f}",
        f"{max(run['peak_mb'] for run in runs):,}",
        f"{max(run['weights_differ_by'] for run in runs):.0e}",
    ]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
