"""The paper's Fig. 3 as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.report.canvas import picture
from fedtrue.report.heat_map import Panel, cell_value, count_text
from fedtrue.report.labels import rate_texts
from fedtrue.report.measures import Measure
from fedtrue.report.targets import reaches

PANELS_ACROSS = 3


def draw_heat_maps(panels: Sequence[Panel], measure: Measure, threshold: float, path: Path) -> None:
    """A panel a method, frames around cells that reach the threshold, hatching where runs diverged."""
    across = min(len(panels), PANELS_ACROSS)
    down = -(-len(panels) // across)
    wide, high = len(panels[0].client_rates), len(panels[0].server_rates)
    grids = [_grid(panel, measure) for panel in panels]
    scale = _scale(measure, np.concatenate([grid[np.isfinite(grid)] for grid in grids]))
    with picture(path, (max(3.2, 0.62 * wide + 0.9) * across, (0.5 * high + 1.3) * down)) as figure:
        figure.set_layout_engine("constrained")
        places = figure.subplots(down, across, squeeze=False)
        for axes in places.flat[len(panels) :]:
            axes.axis("off")
        for axes, panel, grid in zip(places.flat, panels, grids):
            image = axes.imshow(grid, origin="lower", aspect="auto", interpolation="none", **scale)
            _write_cells(axes, panel, grid, image, threshold, measure)
            axes.set_title(f"{panel.title}\n{count_text(panel, measure, threshold)}", fontsize=10)
            axes.set_xticks(range(wide), rate_texts(panel.client_rates), rotation=45)
            axes.set_yticks(range(high), rate_texts(panel.server_rates))
            axes.set(xlabel="client rate", ylabel="server rate")
        written = (lambda value, _: f"{100 * value:g}") if measure.percent else None
        figure.colorbar(image, ax=places, label=f"{measure.title}{measure.unit}", shrink=0.9, format=written)


def _grid(panel: Panel, measure: Measure) -> np.ndarray:
    """Values by (server rate, client rate), NaN where there is none."""
    grid = np.full((len(panel.server_rates), len(panel.client_rates)), np.nan)
    for (server, client), g in panel.cells.items():
        value = cell_value(g, measure)
        grid[panel.server_rates.index(server), panel.client_rates.index(client)] = np.nan if value is None else value
    return grid


def _scale(measure: Measure, values: np.ndarray) -> dict[str, Any]:
    """One for all panels, yellow the best; losses span orders of magnitude where a rate is bad, so on a log scale."""
    from matplotlib.colors import LogNorm, Normalize

    kind = Normalize if measure.higher_is_better or values.min() <= 0 else LogNorm
    colours = "viridis" if measure.higher_is_better else "viridis_r"
    return {"cmap": colours, "norm": kind(values.min(), values.max())}


def _lightness(image: Any, value: float) -> float:
    """Of the value's colour, 0 black and 1 white, as eyes weigh red, green and blue."""
    ((red, green, blue, _),) = image.cmap(image.norm(np.array([value])))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _write_cells(axes: Any, panel: Panel, grid: np.ndarray, image: Any, threshold: float, measure: Measure) -> None:
    from matplotlib.patches import Rectangle

    for server, client in panel.cells:
        row, column = panel.server_rates.index(server), panel.client_rates.index(client)
        value = grid[row, column]
        if not np.isfinite(value):
            hatched: Any = {"fill": False, "hatch": "///", "edgecolor": "#999999", "linewidth": 0}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **hatched))
            continue
        colour = "#111111" if _lightness(image, value) > 0.5 else "white"
        text = f"{100 * value:.1f}" if measure.percent else f"{value:.3g}"
        framed = reaches(value, measure, threshold)
        style = {
            "ha": "center",
            "va": "center",
            "fontsize": 8,
            "color": colour,
            "weight": "bold" if framed else "normal",
        }
        axes.text(column, row, text, **style)
        if framed:
            frame: Any = {"fill": False, "edgecolor": "#CC3311", "linewidth": 2}
            axes.add_patch(Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, **frame))
