"""What `ft.torch.trace` refuses, and how a step is recognised that no trace has seen."""

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.report import TRACE
from fedtrue.torch.parameter_trace import ParameterTrace
from fedtrue.torch.rules import Rule


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuses an optimizer that has stepped, and weights that are no real numbers."""
    for state in optimizer.state.values():
        if float(state.get("step", 0)) > 0 or state.get("momentum_buffer") is not None:
            raise ValueError(
                f"this {type(optimizer).__name__} has stepped already, so its state holds gradients that no trace has "
                "seen: build the optimizer anew in every round, and its trace before the first step"
            )
    if any(param.is_complex() for group in optimizer.param_groups for param in group["params"]):
        raise ValueError("complex parameters have no trace: keep real and imaginary parts as parameters of their own")


def check_correction(correction: Correction, optimizer: Optimizer, rule: Rule) -> None:
    """Refuses what `ft.fedopt` refuses for clients in JAX, and what needs clients with a memory."""
    groups, name = optimizer.param_groups, type(optimizer).__name__
    if correction.table:
        raise ValueError(
            f"correction {correction.name!r} with a table needs clients that keep their last report, and clients in "
            "PyTorch keep nothing between rounds: leave table out"
        )
    bounded = rule.preconditioner is None or all(map(rule.bounded, groups))
    if correction.multiplies_by_trace and not bounded:
        raise ValueError(
            f"correction {correction.name!r} multiplies a report of gradients by the trace, which small gradients make "
            f"arbitrarily large for this {name}: use 'moments', or Adagrad with initial_accumulator_value above 0"
        )
    if correction.needs - {TRACE} and decays_apart(optimizer, rule):
        option = "lambd" if "lambd" in groups[0] else "weight_decay"
        raise ValueError(
            f"correction {correction.name!r} reports gradients, which contain no decoupled weight decay: set "
            f"{option}=0 in this {name}, and let the server decay, e.g. by optax.add_decayed_weights"
        )


def decays_apart(optimizer: Optimizer, rule: Rule) -> bool:
    """Whether the optimizer takes decoupled weight decay off its weights."""
    return any(rule.decay(group).decoupled for group in optimizer.param_groups)


def check_all_steps_were_seen(optimizer: Optimizer, traces: Mapping[Tensor, ParameterTrace]) -> None:
    """Compares the steps that the optimizer counts, as most do, with those that the trace has counted."""
    for param, own in traces.items():
        seen = own.memory["step"]
        taken = int(optimizer.state.get(param, {}).get("step", seen))
        if taken != seen:
            raise RuntimeError(
                f"the optimizer has taken {taken} steps, and its trace has seen {seen}: hooks do not run in a step "
                "that is replayed as a CUDA graph, and a loaded state has steps of its own. Call optimizer.step() "
                "itself, with an optimizer and a trace that are new in every round"
            )


def was_skipped(optimizer: Optimizer) -> bool:
    """Whether a fused optimizer left the weights alone because torch.amp.GradScaler found an infinite gradient."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)
