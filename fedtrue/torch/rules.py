"""Rules: how the optimizers of `torch.optim` step.

    x ← (1 − λ η_k) x − η_k P_k · move(g_k)

P_k is read from the optimizer's own state after the step, never computed a second time from the gradients. The move is
linear in the gradients, so it is repeated here for the gradient 1, whose momentum is a number and no array.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedtrue.names import suggestion

Group: TypeAlias = dict[str, Any]  # of optimizer.param_groups
Memory: TypeAlias = dict[str, Any]  # what a rule keeps of one parameter; "step": its steps so far, this one included
Ones: TypeAlias = float | Tensor  # 1, times what clipping left of the gradient: a number, or a factor per entry


class Stepped(NamedTuple):
    """A parameter that the optimizer has just stepped."""

    param: Tensor  # after the step, with the gradient of the step in .grad
    state: dict[str, Any]  # optimizer.state[param], after the step
    memory: Memory  # the rule's own; "before": what `Rule.before` returned


class Decay(NamedTuple):
    """λ of a group's weight decay."""

    coupled: float = 0.0  # added to the gradient, λ x: a part of the objective
    decoupled: float = 0.0  # taken off the weights, η λ x, as AdamW does


def _no_momentum(group: Group, memory: Memory, one: Ones) -> Ones:
    return one


def _learning_rate(group: Group, memory: Memory) -> float:
    return float(group["lr"])


def _coupled(group: Group) -> Decay:
    return Decay(coupled=float(group.get("weight_decay", 0.0)))


def _decoupled(group: Group) -> Decay:
    return Decay(decoupled=float(group["weight_decay"]))


def _decoupled_if_told(group: Group) -> Decay:
    return _decoupled(group) if group.get("decoupled_weight_decay", False) else _coupled(group)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How optimizers of one class step:  x ← (1 − λ η_k) x − η_k P_k · move(g_k).

    P_k must have one number per weight, and the move must be linear in the gradients. `group` is the parameter group,
    with the options of this step. `ft.torch.register` takes a rule for an optimizer of your own.

    >>> import fedtrue as ft
    >>> signed_by_mean = ft.torch.Rule(preconditioner=lambda group, stepped: [1 / s.state["mean_abs"] for s in stepped])
    """

    preconditioner: Callable[[Group, list[Stepped]], list[Tensor]] | None = None  # P_k: new tensors; None: P = 1
    move: Callable[[Group, Memory, Ones], Ones] = _no_momentum  # (group, memory, 1) → move(1); may write to memory
    step_momentum: Callable[[Group], float] = lambda group: 0.0  # β of a momentum of P g, not of g, as RMSprop's
    rate: Callable[[Group, Memory], float] = _learning_rate  # η_k
    decay: Callable[[Group], Decay] = _coupled  # λ
    before: Callable[[Group, Tensor, dict[str, Any]], Any] | None = None  # (group, param, state) before the step → any
    bounded: Callable[[Group], bool] = lambda group: False  # whether P is bounded whatever the gradients


def _as_float(tensors: list[Tensor]) -> list[Tensor]:
    """At least float32, whatever the precision of the weights."""
    return [tensor if tensor.dtype.itemsize >= 4 else tensor.float() for tensor in tensors]


def _inverse(roots: tuple[Tensor, ...] | list[Tensor], epsilon: list[float]) -> list[Tensor]:
    """1 / (√v + ε), in place."""
    torch._foreach_add_(roots, epsilon)
    torch._foreach_reciprocal_(roots)
    return list(roots)


def _inverse_root(stepped: list[Stepped], name: str, epsilon: list[float]) -> list[Tensor]:
    """1 / (√v + ε), with v of this name in the optimizer's state."""
    return _inverse(torch._foreach_sqrt(_as_float([s.state[name] for s in stepped])), epsilon)


def _averaged(memory: Memory, beta: float, one: Ones) -> Ones:
    """m' = β m + (1−β) 1."""
    memory["momentum"] = beta * memory.get("momentum", 0.0) + (1 - beta) * one
    return memory["momentum"]


def _betas(group: Group) -> tuple[float, float]:
    beta1, beta2 = group["betas"]
    return float(beta1), float(beta2)


# --- SGD and its relatives ----------------------------------------------------------------------------------------


def _sgd_move(group: Group, memory: Memory, one: Ones) -> Ones:
    """m' = β m + (1−d) g, in the first step m' = g;  step = m', or g + β m' (Nesterov)."""
    beta = float(group["momentum"])
    if not beta:
        return one
    first = "momentum" not in memory
    memory["momentum"] = one if first else beta * memory["momentum"] + (1 - float(group["dampening"])) * one
    return one + beta * memory["momentum"] if group["nesterov"] else memory["momentum"]


SGD = Rule(move=_sgd_move)

ASGD = Rule(  # x itself, not the average of the path that it keeps beside; its η_k is in its state before the step
    before=lambda group, param, state: float(state["eta"] if state else group["lr"]),
    rate=lambda group, memory: memory["before"],
    decay=lambda group: Decay(coupled=float(group["weight_decay"]), decoupled=float(group["lambd"])),
)


# --- Adagrad, RMSprop, Adadelta -----------------------------------------------------------------------------------

ADAGRAD = Rule(  # P = 1/(√v + ε), η_k = η / (1 + (k−1) d)
    preconditioner=lambda group, stepped: _inverse_root(stepped, "sum", [group["eps"]] * len(stepped)),
    move=lambda group, memory, one: one / (1 + (memory["step"] - 1) * group["lr_decay"]),
    bounded=lambda group: group["initial_accumulator_value"] > 0,
)


def _rmsprop_preconditioner(group: Group, stepped: list[Stepped]) -> list[Tensor]:
    """1/(√v + ε); centered: 1/(√(v − ḡ²) + ε)."""
    epsilon = [group["eps"]] * len(stepped)
    if not group["centered"]:
        return _inverse_root(stepped, "square_avg", epsilon)
    means = _as_float([s.state["grad_avg"] for s in stepped])
    squares = _as_float([s.state["square_avg"] for s in stepped])
    return _inverse(torch._foreach_sqrt(torch._foreach_addcmul(squares, means, means, value=-1)), epsilon)


RMSPROP = Rule(preconditioner=_rmsprop_preconditioner, step_momentum=lambda group: float(group["momentum"]))


def _adadelta_before(group: Group, param: Tensor, state: dict[str, Any]) -> Tensor:
    """√(u + ε), with u of the steps so far."""
    u = state.get("acc_delta", torch.zeros((), device=param.device))
    return torch.sqrt(u.to(torch.promote_types(u.dtype, torch.float32)) + group["eps"])


def _adadelta_preconditioner(group: Group, stepped: list[Stepped]) -> list[Tensor]:
    """√(u + ε) / √(v + ε)."""
    squares = torch._foreach_add(_as_float([s.state["square_avg"] for s in stepped]), group["eps"])
    return [s.memory["before"] / root for s, root in zip(stepped, torch._foreach_sqrt(squares))]


ADADELTA = Rule(preconditioner=_adadelta_preconditioner, before=_adadelta_before)


# --- Adam and its relatives ---------------------------------------------------------------------------------------


def _root_of_correction(group: Group, memory: Memory) -> float:
    """√(1−β₂ᵗ)."""
    return math.sqrt(1 - _betas(group)[1] ** memory["step"])


def _adam_preconditioner(group: Group, stepped: list[Stepped]) -> list[Tensor]:
    """1/(√v + ε √(1−β₂ᵗ)): PyTorch's 1/(√(v/(1−β₂ᵗ)) + ε), divided by the √(1−β₂ᵗ) that the move has."""
    name = "max_exp_avg_sq" if group.get("amsgrad", False) else "exp_avg_sq"
    return _inverse_root(stepped, name, [group["eps"] * _root_of_correction(group, s.memory) for s in stepped])


def _corrected_momentum(group: Group, memory: Memory, one: Ones) -> Ones:
    """m' = β₁ m + (1−β₁) g,  m' / (1−β₁ᵗ)."""
    beta1, _ = _betas(group)
    return _averaged(memory, beta1, one) / (1 - beta1 ** memory["step"])


def _adam_move(group: Group, memory: Memory, one: Ones) -> Ones:
    """m' √(1−β₂ᵗ) / (1−β₁ᵗ)."""
    return _corrected_momentum(group, memory, one) * _root_of_correction(group, memory)


ADAM = Rule(preconditioner=_adam_preconditioner, move=_adam_move, decay=_decoupled_if_told)
ADAMW = Rule(preconditioner=_adam_preconditioner, move=_adam_move, decay=_decoupled)


def _nadam_move(group: Group, memory: Memory, one: Ones) -> Ones:
    """√(1−β₂ᵗ) (g (1−μ_t) / (1−Πμ) + m' μ_{t+1} / (1−Πμ μ_{t+1})), with the product of μ_1 … μ_t."""
    beta1, _ = _betas(group)
    mu, mu_next = (
        beta1 * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"])) for step in (memory["step"], memory["step"] + 1)
    )
    product = memory["product"] = memory.get("product", 1.0) * mu
    momentum = _averaged(memory, beta1, one)
    step = one * (1 - mu) / (1 - product) + momentum * mu_next / (1 - product * mu_next)
    return step * _root_of_correction(group, memory)


NADAM = Rule(preconditioner=_adam_preconditioner, move=_nadam_move, decay=_decoupled_if_told)


def _rectification(group: Group, memory: Memory) -> float | None:
    """RAdam's r_t √(1−β₂ᵗ); None in its first steps, which have no preconditioner."""
    beta2, step = _betas(group)[1], memory["step"]
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length <= 5:
        return None
    r = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return math.sqrt(r) * _root_of_correction(group, memory)


def _radam_preconditioner(group: Group, stepped: list[Stepped]) -> list[Tensor]:
    """r_t √(1−β₂ᵗ) / (√v + ε), or 1."""
    maps = _inverse_root(stepped, "exp_avg_sq", [group["eps"]] * len(stepped))
    scales = [_rectification(group, s.memory) for s in stepped]
    return [torch.ones_like(p) if scale is None else p.mul_(scale) for p, scale in zip(maps, scales)]


RADAM = Rule(preconditioner=_radam_preconditioner, move=_corrected_momentum, decay=_decoupled_if_told)

ADAMAX = Rule(  # P = 1/u, with the decayed maximum u of |g| + ε
    preconditioner=lambda group, stepped: list(
        torch._foreach_reciprocal(_as_float([s.state["exp_inf"] for s in stepped]))
    ),
    move=_corrected_momentum,
)


def _adafactor_preconditioner(group: Group, stepped: list[Stepped]) -> list[Tensor]:
    """α_k / (η d_k √v), with v of one number per row and column; both scalars are this step's, so they are in P."""
    return [_adafactor_map(group, s) for s in stepped]


def _adafactor_map(group: Group, s: Stepped) -> Tensor:
    (param, state, memory), size = s, s.param.numel() ** 0.5
    gradient: Any = param.grad
    epsilon, smallest_scale = group["eps"]
    epsilon = torch.finfo(param.dtype).eps if epsilon is None else epsilon
    if "row_var" in state:
        row, column = _as_float([state["row_var"], state["col_var"]])
        variance = row @ column / row.mean(dim=-2, keepdim=True).clamp(min=epsilon)
    else:
        variance = _as_float([state["variance"]])[0].clone()
    p = variance.clamp_(min=epsilon**2).rsqrt_()
    clipped = max(1.0, float((p * gradient).norm()) / (size * group["d"]))
    rate = min(float(group["lr"]), memory["step"] ** -0.5)
    return p.mul_(max(smallest_scale, memory["before"] / size) * rate / (clipped * float(group["lr"])))


ADAFACTOR = Rule(
    preconditioner=_adafactor_preconditioner,
    before=lambda group, param, state: float(param.detach().norm()),
    decay=_decoupled,
)


# --- which optimizer has which rule -------------------------------------------------------------------------------

RULES: dict[type[Optimizer], Rule] = {
    torch.optim.SGD: SGD,
    torch.optim.ASGD: ASGD,
    torch.optim.Adagrad: ADAGRAD,
    torch.optim.RMSprop: RMSPROP,
    torch.optim.Adadelta: ADADELTA,
    torch.optim.Adam: ADAM,
    torch.optim.AdamW: ADAMW,
    torch.optim.NAdam: NADAM,
    torch.optim.RAdam: RADAM,
    torch.optim.Adamax: ADAMAX,
}
REFUSED = {  # by name: not every version of PyTorch has all of them
    "LBFGS": "its preconditioner is a dense matrix of many gradients, and so its trace: use torch.optim.Adam or SGD",
    "Rprop": "it looks at the signs of gradients only, so its steps are not linear in them: use torch.optim.RMSprop",
    "Muon": "its preconditioner is a matrix per weight matrix, whose trace only clients in JAX have: use "
    "ft.client.muon, or torch.optim.AdamW",
    "SparseAdam": "its momentum of a row waits until a batch has the row again, so every row would need a trace of its "
    "own: use torch.optim.Adagrad, which takes sparse gradients, or Adam with sparse=False",
}
if hasattr(torch.optim, "Adafactor"):  # from 2.5 on
    RULES[torch.optim.Adafactor] = ADAFACTOR


def register(optimizer: type[Optimizer], rule: Rule | type[Optimizer]) -> None:
    """Makes an optimizer of your own known to `ft.torch.trace`.

    Args:
        optimizer: the class.
        rule: how it steps, or another class that steps in the same way, e.g. the one of `torch.optim` that it extends.

    Returns:
        Nothing.

    >>> import torch, fedtrue as ft
    >>> class LoggedAdam(torch.optim.Adam):
    ...     "Adam, with a log of its own."
    >>> ft.torch.register(LoggedAdam, torch.optim.Adam)
    """
    if not (isinstance(optimizer, type) and issubclass(optimizer, Optimizer)):
        raise ValueError(
            f"register needs a class of optimizers, a subclass of torch.optim.Optimizer, not {optimizer!r}"
        )
    RULES[optimizer] = rule if isinstance(rule, Rule) else rule_of(rule)


def rule_of(optimizer: type[Optimizer]) -> Rule:
    """The rule of this class itself; a subclass may step in another way, so it has none until it is registered."""
    if optimizer in RULES:
        return RULES[optimizer]
    name = f"{optimizer.__module__}.{optimizer.__qualname__}"
    if optimizer.__module__.startswith("torch.optim") and optimizer.__name__ in REFUSED:
        raise ValueError(
            f"{name} cannot be traced: {REFUSED[optimizer.__name__]}. Without a correction no trace is needed: send "
            "the difference of the weights"
        )
    known = [known.__name__ for known in RULES]
    base = next((base for base in optimizer.__mro__ if base in RULES), None)
    cure = f"{optimizer.__name__}, {base.__name__ if base else 'ft.torch.Rule(…)'}"
    raise ValueError(
        f"{name} has no rule{suggestion(optimizer.__name__, known)}: if it steps as a rule says, call "
        f"ft.torch.register({cure}); known are {', '.join(known)}"
    )
