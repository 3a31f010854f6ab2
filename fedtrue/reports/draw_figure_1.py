"""Draws Fig. 1 of the paper from the numbers of `theory.figure_1`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.reports.palette import COLOURS
from fedtrue.theory.figure_1 import Field

TEXT, BACKGROUND, MINIMUM, FIXED_POINT = "#222222", "#FFFFFF", "#FF9F1C", "#2DC653"
SERVER_ADAGRAD = "local Adagrad + local correction"  # the servers of the other methods average


@contextmanager
def _figure(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A figure that is saved when the block ends, readable in a README on light and dark pages."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT)
    solid = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), BACKGROUND)
    style: Any = {**text, **solid, "font.size": 11, "axes.titlesize": 12, "font.family": "DejaVu Sans"}
    with rc_context(style):
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        yield figure
        figure.savefig(path)


def draw_landscape(document: Mapping[str, Any], field: Field, path: Path) -> None:
    """Figure 1a: one panel per method, dark where one round moves the server only a little."""
    with _figure(path, (9, 7.4)) as figure:
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        for axis, row in zip(axes.flat, document["rows"]):
            quantiles = _quantiles(field.norms[row["method"]])
            image = axis.contourf(field.x1, field.x2, quantiles, levels=np.linspace(0, 1, 21), cmap="viridis")
            _draw_points(axis, document, row)
        figure.supxlabel("$x_1$ (curvature 0.3 to 0.5)", fontsize=11)
        figure.supylabel("$x_2$ (curvature 100 to 200)", fontsize=11)
        bar = figure.colorbar(image, ax=axes, shrink=0.85, ticks=[0, 0.25, 0.5, 0.75, 1])
        bar.ax.set_yticklabels(["0 %", "25 %", "50 %", "75 %", "100 %"])
        bar.set_label(r"quantile of $\|x-A(x)\|$ over the panel")
        figure.legend(handles=_landscape_legend(), loc="outside upper center", ncols=3, frameon=False)


def _draw_points(axis: Any, document: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """The clients' minima, the global minimum and the fixed point of the panel's method."""
    x1, x2, distance = row["numbers"].values()
    axis.plot(*np.transpose(document["client_minima"]), "x", color="white", markersize=7, markeredgewidth=1.6)
    axis.plot(*document["minimiser"], "*", color=MINIMUM, markersize=20, markeredgecolor="white", markeredgewidth=1)
    axis.plot(x1, x2, "o", color=FIXED_POINT, markersize=8, markeredgecolor="white", markeredgewidth=1)
    axis.set_title(f"{row['method']}\nfixed point {distance:.2f} from the minimum")


def _landscape_legend() -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], marker="*", color=MINIMUM, markersize=15, linestyle="", label="global minimum"),
        Line2D([], [], marker="o", color=FIXED_POINT, markersize=9, linestyle="", label="fixed point of the method"),
        Line2D([], [], marker="x", color="#888888", markersize=8, linestyle="", label="minimum of one client"),
    ]


def _quantiles(values: np.ndarray) -> np.ndarray:
    """The share of the panel with smaller values: it gives every panel the same contrast, whatever its scale."""
    return values.ravel().argsort().argsort().reshape(values.shape) / values.size


def draw_curves(document: Mapping[str, Any], path: Path) -> None:
    """Figure 1b: distance to the minimum per round, on a logarithmic axis."""
    distances, decay_rounds = document["distances"], document["decay_rounds"]
    with _figure(path, (8, 4.8)) as figure:
        axis = figure.subplots()
        for colour, (name, values) in zip(COLOURS, distances.items()):
            label, style = (f"{name} (server Adagrad)", "--") if name == SERVER_ADAGRAD else (name, "-")
            axis.semilogy(values, style, color=colour, linewidth=2.2, label=label)
        for decay_round in decay_rounds:
            axis.axvline(decay_round, color="#999999", linewidth=1, linestyle=":")
        top = (decay_rounds[0], axis.get_ylim()[1])
        axis.annotate("client learning rate ÷ 5", top, (6, -14), textcoords="offset points", fontsize=10)
        last_round = max(map(len, distances.values())) - 1
        axis.set(xlabel="round", ylabel="distance to the global minimum", xlim=(0, last_round))
        axis.set_title("Adaptive clients are fast; with a correction they also approach the minimum", loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.7)
        axis.legend(frameon=False, loc="lower left")
