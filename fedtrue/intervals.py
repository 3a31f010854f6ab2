"""Confidence intervals of means."""

import math
from collections.abc import Sequence
from statistics import stdev

from scipy.special import stdtrit

CONFIDENCE = 0.95


def student_half_width(values: Sequence[float]) -> float | None:
    """Half the width of Student's 95 % interval of the mean, t(n − 1) s / √n; None for a single value.

    >>> student_half_width([1.0, 2.0, 3.0])  # 4.3027 · 1 / √3
    2.48413...
    """
    count = len(values)
    if count < 2:
        return None
    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * stdev(values) / math.sqrt(count))
