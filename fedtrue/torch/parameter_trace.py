"""The trace of one parameter:  N ← a_k N + s_k move(1, P_k),  with a_k = 1 − λ η_k and s_k = η_k / η.

Beside N stands U, the same sum with P = 1. It is N for optimizers without a preconditioner, where both are numbers. For
the others it is what `first_gradient` needs: as long as an entry has had no gradient, N = P_k U.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtrue.torch.rules import Memory, Ones


@dataclass
class ParameterTrace:
    """What is kept of one parameter."""

    memory: Memory = field(default_factory=lambda: {"step": 0})  # of the rule
    total: Ones = 0.0  # N, with a preconditioner
    unit_total: Ones = 0.0  # U
    moved: Ones = 0.0  # with a momentum of steps: that momentum, fed with ones
    unit_moved: Ones = 0.0  # the same with P = 1
    unseen: Tensor | None = None  # 1.0 for entries that have had no gradient, else 0.0; None: there are none
    rates: float = 0.0  # Σ s_k over all steps of the optimizer
    rates_with_gradient: float = 0.0  # Σ s_k over those that had a gradient for this parameter
    decayed: float = 0.0  # D ← a_k D + λ η_k: the share of x that decoupled weight decay took off
    decay_trace: float = 0.0  # S ← a_k S + s_k

    @property
    def share_with_gradient(self) -> float:
        """How much of the learning rate went into steps with a gradient; 1 for a parameter without any step."""
        return self.rates_with_gradient / self.rates if self.rates_with_gradient else 1.0


class TracedStep(NamedTuple):
    """A step of one parameter, as its trace sees it."""

    trace: ParameterTrace
    move: Ones  # move(1, 1)
    rate: float  # s_k
    kept: float  # a_k
    untouched: Tensor | None  # 1.0 for entries whose gradient is 0, else 0.0, as long as some are unseen


def add_units(steps: list[TracedStep], beta: float) -> None:
    """U ← a U + s move(1, 1), through the momentum of steps if there is one."""
    for own, move, rate, kept, _ in steps:
        own.unit_moved = beta * own.unit_moved + move
        own.unit_total = kept * own.unit_total + rate * own.unit_moved


def add_preconditioned(steps: list[TracedStep], maps: list[Tensor], beta: float) -> None:
    """N ← a N + s move(1, P); entries that had no gradient before this step have N = P U."""
    if beta or any(isinstance(step.move, Tensor) for step in steps):
        _add(steps, [_moved(step, p, beta) for step, p in zip(steps, maps)], [step.rate for step in steps])
    else:
        _add(steps, maps, [step.rate * step.move for step in steps])
    for step, p in zip(steps, maps):
        if step.trace.unseen is not None:
            _count_from_first_gradient(step, p)


def _moved(step: TracedStep, p: Tensor, beta: float) -> Tensor:
    """move(1, P), through the momentum of steps if there is one."""
    own = step.trace
    if not beta:
        return p * step.move
    if not isinstance(own.moved, Tensor):
        own.moved = p * step.move
    elif isinstance(step.move, Tensor):
        own.moved.mul_(beta).addcmul_(p, step.move)
    else:
        own.moved.mul_(beta).add_(p, alpha=step.move)
    return own.moved


def _add(steps: list[TracedStep], moved: list[Tensor], factors: list[Any]) -> None:
    """N ← a N + f moved, in one call for all parameters."""
    for step, p in zip(steps, moved):
        if not isinstance(step.trace.total, Tensor):
            step.trace.total = torch.zeros_like(p)
    totals: Any = [step.trace.total for step in steps]
    if any(step.kept != 1 for step in steps):
        torch._foreach_mul_(totals, [step.kept for step in steps])
    if any(factor != factors[0] for factor in factors):
        torch._foreach_add_(totals, list(torch._foreach_mul(moved, factors)))
    else:
        torch._foreach_add_(totals, moved, alpha=factors[0])


def _count_from_first_gradient(step: TracedStep, p: Tensor) -> None:
    """Where there was no gradient before this step, all steps so far count with its P.

    `lerp` by 0 or 1 is exact, and on a CPU ten times as fast as `where`.
    """
    own: Any = step.trace
    if isinstance(own.moved, Tensor):
        own.moved.lerp_(p * own.unit_moved, own.unseen)
    own.total.lerp_(p.mul_(own.unit_total), own.unseen)
    own.unseen.mul_(step.untouched)
    if _is_power_of_two(own.memory["step"]) and not own.unseen.any():  # not always: it makes an accelerator wait
        own.unseen = None


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
