"""A picture of what clients gain by fine-tuning: a histogram, and every client before and after."""

from pathlib import Path

import numpy as np

from fedtrue.reports.canvas import picture
from fedtrue.reports.palette import COLOURS
from fedtrue.runner.personalise import Personalisation

BINS = 30


def draw_gains(found: Personalisation, path: Path, title: str) -> Path:
    """Draw the first metric: the histogram of the gains, and each client's value before and after.

    Args:
        found: what `ft.personalise` returned.
        path: .png, .pdf or .svg.
        title: of the picture.

    Returns:
        The path.
    """
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{path} has no known ending: give a .png, .pdf or .svg file")
    name, kind = next(iter(found.metrics.items()))
    scale, unit = (100, " (%)") if kind.percent else (1, "")
    gains, statistics = scale * found.gains(), found.statistics()
    finite = np.isfinite(gains)
    with picture(path, (10, 4.5)) as figure:
        left, right = figure.subplots(1, 2)
        left.hist(gains[finite], bins=BINS, color=COLOURS[0])
        left.axvline(0, color="black", linewidth=1)
        left.set_xlabel(f"gain in {name}{unit}")
        left.set_ylabel("clients")
        left.set_title(f"{100 * statistics['loses']:.3g} % of {len(gains):,} clients lose")
        before, after = scale * found.before[name][finite], scale * found.after[name][finite]
        right.scatter(before, after, s=12, color=COLOURS[0], alpha=0.6, linewidths=0)
        right.axline((float(before.mean()), float(before.mean())), slope=1, color="black", linewidth=1)
        right.set_xlabel(f"{name} with the run's model{unit}")
        right.set_ylabel(f"{name} after fine-tuning{unit}")
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle(title)
        figure.tight_layout()
    return path
