"""Curves for people: one line a method."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

COLOURS = ("#4477AA", "#CC3311", "#009988", "#EE7733", "#AA3377", "#BBBBBB")  # Paul Tol's, for colour-blind readers


def draw_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]], path: Path, *, title: str, y_label: str, x_label: str = "round"
) -> None:
    """One picture of {name: (x, y)}, on a solid background, readable in a README."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), facecolor="white")
    for (name, (x, y)), colour in zip(curves.items(), COLOURS):
        axes.plot(x, y, color=colour, linewidth=2, label=name)
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)
