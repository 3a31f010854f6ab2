"""Sums of the parameters' gradients, for the reports that are means of gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtrue.algorithm.report import MEAN, SLOPE, SQUARE, GradientSums, gradient_means
from fedtrue.torch.tensors import as_array, wide_type


@dataclass
class ParameterSums:
    """Σ n_k g_k, Σ n_k g_k² and Σ n_k k g_k of one parameter, as far as they are needed."""

    weights: tuple[float, ...]  # Σ n_k, Σ n_k k, Σ n_k k²
    totals: dict[str, Tensor]  # by MEAN, SQUARE, SLOPE

    def means(self) -> dict[str, Any]:
        """ḡ, v̄ and the intercept, by their names in `Steps`."""
        total = lambda name: as_array(self.totals[name]) if name in self.totals else ()
        return gradient_means(GradientSums(self.weights, total(MEAN), total(SQUARE), total(SLOPE), ()))


class SeenGradient(NamedTuple):
    """A parameter's gradient in one step; None: it had none, which counts as 0."""

    sums: ParameterSums
    gradient: Tensor | None


def no_gradients(needs: Iterable[str], param: Tensor) -> ParameterSums:
    """The sums before the first step."""
    zeros = lambda: torch.zeros_like(param, dtype=wide_type(param), requires_grad=False)
    return ParameterSums((0.0, 0.0, 0.0), {name: zeros() for name in (MEAN, SQUARE, SLOPE) if name in needs})


def add_gradients(seen: list[SeenGradient], weight: float, k: int) -> None:
    """The gradients of step k, each with the weight n_k."""
    for sums, _ in seen:
        sums.weights = tuple(total + weight * k**power for power, total in enumerate(sums.weights))
    present = [(sums.totals, gradient) for sums, gradient in seen if gradient is not None]
    if not present:
        return
    totals = lambda name: [own[name] for own, _ in present]
    gradients = [gradient.to(wide_type(gradient)) for _, gradient in present]
    needs = present[0][0]
    if MEAN in needs:
        torch._foreach_add_(totals(MEAN), gradients, alpha=weight)
    if SQUARE in needs:
        torch._foreach_addcmul_(totals(SQUARE), gradients, gradients, value=weight)
    if SLOPE in needs:
        torch._foreach_add_(totals(SLOPE), gradients, alpha=weight * k)
