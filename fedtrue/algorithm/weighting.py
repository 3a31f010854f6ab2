"""How much a client's contribution counts in the weighted sums."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtrue.spec import FACTORIES, Part, accepts, named


@dataclass(frozen=True, eq=False, repr=False)
class Weighting(Part):
    """One weight per train client; only their ratios matter."""

    weights: Callable[[Any], np.ndarray]  # task → weights


@named("weighting")
def uniform() -> Weighting:
    """Every client counts the same."""
    return Weighting(lambda task: task.client_weights("uniform"))


@named("weighting")
def examples() -> Weighting:
    """By the number of examples."""
    return Weighting(lambda task: task.client_weights("examples"))


@named("weighting")
def tokens() -> Weighting:
    """By the number of tokens."""
    return Weighting(lambda task: task.client_weights("tokens"))


@named("weighting")
def batches() -> Weighting:
    """By the number of batches in an epoch: as the examples count, if the loss is a sum over the batch."""
    return Weighting(lambda task: task.client_weights("batches"))


WEIGHTINGS = FACTORIES["weighting"]
accepts("weighting", Weighting, '"examples"')
