"""Evaluation by streaming: metric sums over batches, so memory does not grow with the test set."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def means(sums: Mapping[str, Any]) -> dict[str, Any]:
    """{name: (total, count)} → {name: mean}; nothing counted gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            name: np.asarray(total, np.float64) / np.asarray(count, np.float64) for name, (total, count) in sums.items()
        }


Progress = Callable[[int, int, Mapping[str, float]], None]
