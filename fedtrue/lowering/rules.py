"""The table: platform → primitive → rules. A rule is an equivalent of the primitive in other operations.

A rule that gives operations of the same primitive is applied to them again, until none applies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax import lax

from fedtrue.lowering import convolution, pooling, scan


class Rule(NamedTuple):
    """Where it applies, and what is computed instead."""

    applies: Callable[[Sequence[Any], Mapping[str, Any]], bool]  # (avals of the operands, parameters) → bool
    function: Callable[..., Any]  # (*operands, **parameters) → what the primitive gives


POOLING = {
    lax.reduce_window_max_p: [Rule(pooling.is_small, pooling.max_by_slices)],
    lax.reduce_window_sum_p: [Rule(pooling.is_small, pooling.sum_by_slices)],
    lax.select_and_scatter_add_p: [Rule(pooling.is_small_max, pooling.scatter_by_slices)],
}
SCANS = {lax.scan_p: [Rule(scan.has_work_outside, scan.with_work_outside)]}
RULES: Mapping[str, Mapping[Any, Sequence[Rule]]] = {
    "cpu": {
        lax.conv_general_dilated_p: [
            Rule(convolution.has_few_groups, convolution.by_group),
            Rule(convolution.is_winograd, convolution.by_winograd),
            Rule(convolution.is_not_canonical, convolution.canonical),
        ],
        **POOLING,
        **SCANS,
    },
    "gpu": {
        lax.conv_general_dilated_p: [Rule(convolution.has_few_patches, convolution.by_patches)],
        **POOLING,
        **SCANS,
    },
}
