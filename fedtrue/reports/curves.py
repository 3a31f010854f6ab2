"""Curves as a picture: one line per method."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedtrue.reports.canvas import picture
from fedtrue.reports.palette import COLOURS, line_style

MAX_LEGEND_INSIDE = 6  # a longer legend would cover the curves


def draw_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    path: Path,
    *,
    title: str,
    y_label: str,
    x_label: str = "round",
    bands: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    y_range: tuple[float, float] | None = None,
) -> None:
    """Draws curves on a white background, readable at the width of a README.

    Args:
        curves: (x, y) by name.
        path: the PNG, PDF or SVG file to write.
        title: heading of the picture.
        y_label: label of the vertical axis.
        x_label: label of the horizontal axis.
        bands: (low, high) by name, drawn as a band around the curve.
        y_range: the lowest and highest y that are shown.
    """
    with picture(path, (8, 4.5)) as figure:
        axes = figure.subplots()
        for index, (name, (x, y)) in enumerate(curves.items()):
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(x, y, color=colour, linestyle=line_style(index), linewidth=2, label=name)
            if bands and name in bands:
                axes.fill_between(x, *bands[name], color=colour, alpha=0.2, linewidth=0)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        if y_range is not None:
            axes.set_ylim(*y_range)
        axes.xaxis.get_major_locator().set_params(integer=x_label == "round")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves) > MAX_LEGEND_INSIDE:
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
        else:
            axes.legend(frameon=False)
