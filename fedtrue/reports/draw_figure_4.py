"""Draws Fig. 4 of the paper from a document of `theory.figure_4`, just measured or read from a file."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtrue.reports.canvas import picture
from fedtrue.reports.palette import COLOURS, line_style
from fedtrue.theory.figure_4 import best_curves, rows


def read_contraction(path: Path) -> dict[str, Any]:
    """A document that `fedtrue theory contraction --json` printed: a JSON file, or the same compressed as .gz."""
    try:
        content = path.read_bytes()
        document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        is_complete = bool(rows(document))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: `fedtrue theory contraction --json > {path}` writes it") from None
    except (KeyError, TypeError, ValueError, gzip.BadGzipFile):
        is_complete = False
    if not is_complete:
        raise ValueError(f"{path} is not what `fedtrue theory contraction --json` prints: write it again")
    return dict(document)


def draw_contraction(document: Mapping[str, Any], path: Path) -> None:
    """Each optimizer at its best learning rate, against k (logarithmic); one panel per deviation of the starts."""
    curves = list(best_curves(document).values())
    deviations = list(dict.fromkeys(curve.get("start_deviation") for curve in curves))
    with picture(path, (max(8, 4 * len(deviations)), 4.5)) as figure:
        panels = figure.subplots(1, len(deviations), sharey=True, squeeze=False)[0]
        for axes, deviation in zip(panels, deviations):
            _draw_panel(axes, [curve for curve in curves if curve.get("start_deviation") == deviation])
            if deviation is not None:
                axes.set_title(f"starts from N(0, {deviation:g}²)", fontsize=10)
        panels[0].set_ylabel("h(k): below 1 is a contraction")


def _draw_panel(axes: Any, curves: Sequence[Mapping[str, Any]]) -> None:
    """Bands are the deviation over starts."""
    k = np.arange(1, len(curves[0]["h"]) + 1)
    for index, curve in enumerate(curves):
        h, spread = np.asarray(curve["h"]), np.asarray(curve["deviation"])
        label = f"{curve['optimizer']}, η = {curve['rate']:g}"
        axes.semilogx(k, h, color=COLOURS[index], linestyle=line_style(index), linewidth=2, label=label)
        axes.fill_between(k, h - spread, h + spread, color=COLOURS[index], alpha=0.2, linewidth=0)
    axes.axhline(1, color="#999999", linewidth=1, linestyle=":")
    axes.set(xlabel="local steps k", xlim=(1, len(k)))
    axes.grid(alpha=0.3, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
