"""Curves as a picture: one line a method."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedtrue.report.canvas import picture
from fedtrue.report.palette import COLOURS, line_style

Band = tuple[np.ndarray, np.ndarray]


def draw_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    path: Path,
    *,
    title: str,
    y_label: str,
    x_label: str = "round",
    bands: Mapping[str, Band] | None = None,
    limits: tuple[float, float] | None = None,
) -> None:
    """One picture of {name: (x, y)} with bands {name: (low, high)}, on a solid background, readable in a README.

    `limits` are the lowest and highest y that are shown.
    """
    with picture(path, (8, 4.5)) as figure:
        axes = figure.subplots()
        for place, (name, (x, y)) in enumerate(curves.items()):
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(x, y, color=colour, linestyle=line_style(place), linewidth=2, label=name)
            if bands and name in bands:
                axes.fill_between(x, *bands[name], color=colour, alpha=0.2, linewidth=0)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        if limits is not None:
            axes.set_ylim(*limits)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves) > 6:
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
        else:
            axes.legend(frameon=False)
