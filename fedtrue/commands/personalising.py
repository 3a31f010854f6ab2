"""`fedtrue personalise`."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from fedtrue.commands.answer import Answer, printer, table
from fedtrue.reports.gains import draw_gains
from fedtrue.reports.number_text import plural
from fedtrue.runner.personalise import Personalisation, personalise
from fedtrue.tasks.metric import Metric

BINS, BAR_WIDTH = 12, 40  # of the histogram in the terminal
COLUMNS = [
    "metric",
    "before",
    "after",
    "mean gain, by examples",
    "mean gain of clients",
    "lowest",
    "10 %",
    "median",
    "90 %",
    "highest",
    "clients that lose",
]


def personalise_run(options: Namespace) -> Answer:
    found = personalise(options.run, steps=options.steps, client_rate=options.client_rate, hold_out=options.hold_out)
    title = f"{options.run}: {_steps_text(found.steps)} of {found.optimizer!r}"
    parts: list[Any] = [_gains_table(found, title), _histogram(found), _evaluated_text(found)]
    if options.out is not None:
        parts.append(f"picture: {draw_gains(found, options.out, title)}")
    return Answer(document(found), printer(*parts))


def document(found: Personalisation) -> dict[str, Any]:
    """All numbers, for `--json`."""
    return {
        "clients": len(found.clients),
        "left_out": found.left_out,
        "held_out": found.held_out,
        "optimizer": found.optimizer.spec,
        "metric": next(iter(found.metrics)),
        "gain": {name: found.statistics(name) for name in found.metrics},
        "each": {
            "client": found.clients,
            "examples": found.examples,
            "steps": found.steps,
            **{f"{name}.before": values for name, values in found.before.items()},
            **{f"{name}.after": values for name, values in found.after.items()},
        },
    }


def _gains_table(found: Personalisation, title: str) -> Table:
    rows = [_row(found, name, kind) for name, kind in found.metrics.items()]
    return table(title, COLUMNS, rows, numeric=[False] + [True] * (len(COLUMNS) - 1))


def _row(found: Personalisation, name: str, kind: Metric) -> list[str]:
    scale, unit = (100, " (%)") if kind.percent else (1, "")
    statistics = found.statistics(name)
    overall = [_mean_text(values[name], found.examples, scale) for values in (found.before, found.after)]
    keys = ("weighted_mean", "mean", "min", "p10", "median", "p90", "max")
    gains = [f"{scale * statistics[key]:+.4g}" if key in statistics else "–" for key in keys]
    return [f"{name}{unit}", *overall, *gains, f"{100 * statistics['loses']:.3g} %"]


def _mean_text(values: np.ndarray, examples: np.ndarray, scale: float) -> str:
    """The mean over all held-out examples."""
    finite = np.isfinite(values)
    return f"{scale * np.average(values[finite], weights=examples[finite]):.4g}" if finite.any() else "–"


def _histogram(found: Personalisation) -> Table:
    """The gains in the first metric, one bar per bin; a bin edge is at 0, so that no bar has winners and losers."""
    name, kind = next(iter(found.metrics.items()))
    gains = found.gains()[np.isfinite(found.gains())] * (100 if kind.percent else 1)
    edges = bin_edges(gains, BINS)
    counts = np.histogram(gains, edges)[0]
    longest = max(int(counts.max(initial=0)), 1)
    rows = [
        [f"{low:+.3g} to {high:+.3g}", str(count), "█" * -(-BAR_WIDTH * int(count) // longest)]
        for low, high, count in zip(edges, edges[1:], counts)
    ]
    return table(f"Gains in {name}{' (%)' if kind.percent else ''}", ["gain", "clients", ""], rows, [True, True, False])


def bin_edges(values: np.ndarray, bins: int) -> np.ndarray:
    """Edges of equal bins that cover the values; 0 is one of them, and belongs to the bin above it."""
    low, high = min(values.min(initial=0), 0.0), max(values.max(initial=0), 0.0)
    width = (high - low) / bins
    if width == 0:
        return np.array([-1.0, 0.0, 1.0])
    below = int(np.ceil(-low / width))
    return width * np.arange(-below, max(int(np.ceil(high / width)), 1) + 1)


def _steps_text(steps: Sequence[int] | np.ndarray) -> str:
    fewest, most = int(np.min(steps)), int(np.max(steps))
    return plural(most, "step") if fewest == most else f"{fewest} to {most} steps"


def _evaluated_text(found: Personalisation) -> str:
    left_out = f"; {plural(found.left_out, 'client')} without such examples left out" if found.left_out else ""
    diverged = int(found.statistics()["diverged"])
    lost = f"; {plural(diverged, 'client')} diverged and counted as losing" if diverged else ""
    return f"{plural(len(found.clients), 'client')}, evaluated on {found.held_out}{left_out}{lost}"
