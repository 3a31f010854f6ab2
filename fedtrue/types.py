"""Names for what functions take and return."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax

Array: TypeAlias = jax.Array
PyTree: TypeAlias = Any  # a tree of arrays: JAX has no type for it
Params: TypeAlias = PyTree  # a model's weights
Batch: TypeAlias = Mapping[str, Any]  # the data's columns, `mask` (0 on padding) and `key` (its own randomness)
Sums: TypeAlias = dict[str, tuple[Any, Any]]  # metric → (total, count): sums, never means, so that they add up
LearningRate: TypeAlias = float | Callable[[Any], Any]  # a number, or a function of the round
LossFunction: TypeAlias = Callable[[Params, Batch], tuple[Array, Sums]]
