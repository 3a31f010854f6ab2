"""What a client sends, of the weights and traces at the end of its round."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedtrue.algorithm.client_update import DECAY
from fedtrue.algorithm.correction import Correction, Sent
from fedtrue.algorithm.report import Steps
from fedtrue.torch.parameter_trace import ParameterTrace
from fedtrue.torch.tensors import as_array, wide, wide_type

Weights: TypeAlias = nn.Module | Mapping[str, Tensor | np.ndarray]
Named: TypeAlias = dict[str, Tensor]


def named_parameters(optimizer: Optimizer, model: nn.Module) -> Named:
    """The parameters of the optimizer by their names in the model; tied ones by their first name."""
    own = {param for group in optimizer.param_groups for param in group["params"]}
    named: Named = {name: param for name, param in model.named_parameters() if param in own}
    if len(named) != len(own):
        raise ValueError(
            f"{len(own) - len(named)} of the optimizer's {len(own)} parameters are not in this model: pass the model "
            "whose parameters() the optimizer was given"
        )
    return named


def first_weights(start: Weights, params: Named) -> Named:
    """x, where the round began."""
    weights = dict(start.named_parameters()) if isinstance(start, nn.Module) else start
    return {name: _first_weight(name, weights, param) for name, param in params.items()}


def _first_weight(name: str, start: Mapping[str, Any], param: Tensor) -> Tensor:
    if name not in start:
        raise ValueError(f"start has no {name!r}: pass a copy of the model's state_dict() from before the first step")
    given = start[name]
    is_tensor = isinstance(given, Tensor)
    first = given if is_tensor else torch.tensor(np.asarray(given))
    if first.shape != param.shape:
        raise ValueError(f"start[{name!r}] has shape {tuple(first.shape)}, the model's parameter {tuple(param.shape)}")
    if param.numel() and param.data_ptr() == (given.data_ptr() if is_tensor else np.asarray(given).ctypes.data):
        raise ValueError(
            f"start[{name!r}] is the model's own memory and changes with it: copy the weights before the first step, "
            "e.g. start = {name: weight.clone() for name, weight in model.state_dict().items()}"
        )
    return first.detach().to(param.device, wide_type(param))


def moved_by_gradients(first: Named, params: Named, traces: Mapping[str, ParameterTrace]) -> dict[str, np.ndarray]:
    """Δ = x − x_τ − D x: without what decoupled weight decay took off."""
    moved = lambda name, x: x - wide(params[name]) - traces[name].decayed * x
    return {name: as_array(moved(name, x)) for name, x in first.items()}


def total_trace(param: Tensor, own: ParameterTrace, preconditioned: bool, counts_missing: bool) -> np.ndarray:
    """N: an array, or a number if there is no preconditioner.

    A missing gradient is a gradient of 0, but the optimizer skips the parameter then. `counts_missing`: the skipped
    steps count as the mean of the others, so that Δ / N is the mean of all gradients, and not of those that are not 0.
    """
    total = own.total if preconditioned else own.unit_total
    if counts_missing:
        total = total / own.share_with_gradient
    if not isinstance(total, Tensor):
        total = torch.full(param.shape if preconditioned else (), total, dtype=wide_type(param))
    return as_array(total)


def decay_contributions(
    correction: Correction, steps: Steps, params: Named, traces: Mapping[str, ParameterTrace]
) -> Sent:
    """What is sent of decoupled weight decay: the share D of x that it took off, with its own trace S."""
    number = lambda name, value: as_array(torch.tensor(value, dtype=wide_type(params[name])))
    share = {name: number(name, own.decayed) for name, own in traces.items()}
    s = {name: number(name, own.decay_trace) for name, own in traces.items()}
    sent = correction.send(Steps(share, steps.learning_rate, steps.count, s))
    return {DECAY + name: value for name, value in sent.items()}
