"""Draws Fig. 4 of the paper from a document of `theory.figure_4`, just measured or read from a file."""

import gzip
import json
from collections.abc import Mapping
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
    """Each optimizer at its best learning rate, against k (logarithmic); bands are the deviation over starts."""
    k = np.arange(1, document["steps"] + 1)
    with picture(path, (8, 4.5)) as figure:
        axes = figure.subplots()
        for index, (name, curve) in enumerate(best_curves(document).items()):
            h, deviation = np.asarray(curve["h"]), np.asarray(curve["deviation"])
            label = f"{name}, η = {curve['rate']:g}"
            axes.semilogx(k, h, color=COLOURS[index], linestyle=line_style(index), linewidth=2, label=label)
            axes.fill_between(k, h - deviation, h + deviation, color=COLOURS[index], alpha=0.2, linewidth=0)
        axes.axhline(1, color="#999999", linewidth=1, linestyle=":")
        axes.set(xlabel="local steps k", ylabel="h(k): below 1 is a contraction", xlim=(1, document["steps"]))
        axes.grid(alpha=0.3, which="both")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower left")
