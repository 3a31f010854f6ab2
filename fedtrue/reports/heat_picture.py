"""The paper's Fig. 3 as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.reports.canvas import picture
from fedtrue.reports.heat_map import Panel, cell_value, count_text
from fedtrue.reports.labels import rate_texts
from fedtrue.reports.measures import Measure
from fedtrue.reports.targets import reaches_target

PANELS_PER_ROW = 3


def draw_heat_maps(panels: Sequence[Panel], measure: Measure, threshold: float, path: Path) -> None:
    """One panel per method, frames around cells that reach the threshold, hatching where runs diverged."""
    columns = min(len(panels), PANELS_PER_ROW)
    rows = -(-len(panels) // columns)
    wide, high = len(panels[0].client_rates), len(panels[0].server_rates)
    grids = [_value_grid(panel, measure) for panel in panels]
    scale = _colour_scale(measure, np.concatenate([grid[np.isfinite(grid)] for grid in grids]))
    with picture(path, (max(3.2, 0.62 * wide + 0.9) * columns, (0.5 * high + 1.3) * rows)) as figure:
        figure.set_layout_engine("constrained")
        all_axes = figure.subplots(rows, columns, squeeze=False)
        for axes in all_axes.flat[len(panels) :]:
            axes.axis("off")
        for axes, panel, grid in zip(all_axes.flat, panels, grids):
            image = axes.imshow(grid, origin="lower", aspect="auto", interpolation="none", **scale)
            _write_cells(axes, panel, grid, image, threshold, measure)
            axes.set_title(f"{panel.title}\n{count_text(panel, measure, threshold)}", fontsize=10)
            axes.set_xticks(range(wide), rate_texts(panel.client_rates), rotation=45)
            axes.set_yticks(range(high), rate_texts(panel.server_rates))
            axes.set(xlabel="client rate", ylabel="server rate")
        percent_text = (lambda value, _: f"{100 * value:g}") if measure.percent else None
        figure.colorbar(image, ax=all_axes, label=f"{measure.title}{measure.unit}", shrink=0.9, format=percent_text)


def _value_grid(panel: Panel, measure: Measure) -> np.ndarray:
    """Values by (server rate, client rate), NaN where there is none."""
    grid = np.full((len(panel.server_rates), len(panel.client_rates)), np.nan)
    for (server, client), group in panel.cells.items():
        value = cell_value(group, measure)
        grid[panel.server_rates.index(server), panel.client_rates.index(client)] = np.nan if value is None else value
    return grid


def _colour_scale(measure: Measure, values: np.ndarray) -> dict[str, Any]:
    """One scale for all panels, yellow is best; logarithmic for losses, which span orders of magnitude."""
    from matplotlib.colors import LogNorm, Normalize

    norm = Normalize if measure.higher_is_better or values.min() <= 0 else LogNorm
    colours = "viridis" if measure.higher_is_better else "viridis_r"
    return {"cmap": colours, "norm": norm(values.min(), values.max())}


def _lightness(image: Any, value: float) -> float:
    """The relative luminance of the colour of a value: 0 is black, 1 is white."""
    ((red, green, blue, _),) = image.cmap(image.norm(np.array([value])))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _write_cells(axes: Any, panel: Panel, grid: np.ndarray, image: Any, threshold: float, measure: Measure) -> None:
    from matplotlib.patches import Rectangle

    hatching: Any = {"fill": False, "hatch": "///", "edgecolor": "#999999", "linewidth": 0}
    frame: Any = {"fill": False, "edgecolor": "#CC3311", "linewidth": 2}
    for server, client in panel.cells:
        row, column = panel.server_rates.index(server), panel.client_rates.index(client)
        value = grid[row, column]
        if not np.isfinite(value):
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **hatching))
            continue
        colour = "#111111" if _lightness(image, value) > 0.5 else "white"
        text = f"{100 * value:.1f}" if measure.percent else f"{value:.3g}"
        is_framed = reaches_target(value, measure, threshold)
        weight = "bold" if is_framed else "normal"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour, weight=weight)
        if is_framed:
            axes.add_patch(Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, **frame))
