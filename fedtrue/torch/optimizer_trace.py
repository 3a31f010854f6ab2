"""The trace of an optimizer of PyTorch, kept by hooks on its `step` while the user's own loop trains."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import jax
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.correction import Correction
from fedtrue.algorithm.report import TRACE, Steps
from fedtrue.names import look_up
from fedtrue.precision import float64
from fedtrue.spec import by_name, from_spec
from fedtrue.torch.checks import (
    check_all_steps_were_seen,
    check_correction,
    check_optimizer,
    decays_apart,
    was_skipped,
)
from fedtrue.torch.contributions import (
    Weights,
    decay_contributions,
    first_weights,
    moved_by_gradients,
    named_parameters,
    total_trace,
)
from fedtrue.torch.gradient_sums import ParameterSums, SeenGradient, add_gradients, no_gradients
from fedtrue.torch.parameter_trace import ParameterTrace, TracedStep, add_preconditioned, add_units
from fedtrue.torch.rules import Group, Ones, Stepped, rule_of
from fedtrue.torch.tensors import as_list, dense, wide, wide_type

Update: TypeAlias = dict[str, Any]  # name of a contribution → {name of a parameter: array}, or one number
TRACES = {
    "first_gradient": "steps before an entry's first gradient count with the P of that gradient",
    "exact": "every step counts with its own P",
}
NORM_OFFSET = 1e-6  # torch.nn.utils.clip_grad_norm_ divides by the norm plus this


def trace(
    optimizer: Optimizer,
    correction: Correction = by_name("joint"),
    trace: str = "first_gradient",
    learning_rate: float | None = None,
) -> "OptimizerTrace":
    """Keeps what a correction needs of a client's local steps, while your own loop calls `optimizer.step()`.

    Build the optimizer and its trace anew in every round, before the first step. Training does not change: the weights
    are bit for bit those without a trace.

    Args:
        optimizer: of `torch.optim`, or of a class that `ft.torch.register` knows; it has not stepped yet.
        correction: the server's: "none", "local", "joint", "moments", a table with options, or an `ft.Correction`.
        trace: "first_gradient" or "exact", as in `ft.fedopt`.
        learning_rate: η, the same on all clients of a round; rates of groups, clients and schedules enter the trace
            relative to it. Without it, the initial rate of the first group.

    Returns:
        The trace. Its `update(model, start)` is what the client sends.

    >>> import torch, fedtrue as ft
    >>> model = torch.nn.Linear(2, 1)
    >>> start = {name: weight.clone() for name, weight in model.state_dict().items()}
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> trace = ft.torch.trace(optimizer, correction="joint")
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(4, 2)).mean().backward()
    ...     loss = optimizer.step()
    >>> update = trace.update(model, start)
    >>> {name: update["update"][name].shape for name in ("bias", "weight")}
    {'bias': (1,), 'weight': (1, 2)}
    """
    return OptimizerTrace(optimizer, from_spec(correction, "correction"), trace, learning_rate)


class OptimizerTrace:
    """What `ft.torch.trace` returns: it watches an optimizer, and knows what the client sends."""

    correction: Correction  # whose contributions `update` returns
    learning_rate: float  # η, to which the trace is relative
    steps: int  # τ, taken so far

    def __init__(self, optimizer: Optimizer, correction: Correction, trace: str, learning_rate: float | None) -> None:
        self._optimizer, self._rule = optimizer, rule_of(type(optimizer))
        look_up("trace", TRACES, trace)
        check_optimizer(optimizer)
        check_correction(correction, optimizer, self._rule)
        self.correction, self.steps = correction, 0
        self.learning_rate = _initial_rate(optimizer) if learning_rate is None else float(learning_rate)
        check_float("learning_rate", self.learning_rate, open_low=True)
        self._from_first_gradient = trace == "first_gradient"
        self._needs_gradients = bool(correction.needs - {TRACE})
        self._traces: dict[Tensor, ParameterTrace] = {}
        self._sums: dict[Tensor, ParameterSums] = {}
        self._clip: dict[Tensor, Ones] = {}  # what clipping left of the next step's gradients
        self._weights_before: dict[Tensor, Tensor] = {}  # where coupled weight decay adds them to a gradient
        self._batch_weight, self._batch_is_new = 1.0, True
        if self._rule.before or self._needs_gradients:
            optimizer.register_step_pre_hook(torch.compiler.disable(self._before_step))
        optimizer.register_step_post_hook(torch.compiler.disable(self._after_step))

    def update(self, model: nn.Module, start: Weights) -> Update:
        """What the client sends: the contributions of its correction, as `Correction.receive` takes their means.

        Args:
            model: the model after the local steps; its `named_parameters()` give the arrays their names.
            start: the weights before them: a copy of the model, or of its `state_dict()`; arrays of NumPy work too.

        Returns:
            Contributions by name. Each is a dict of arrays by the names of those parameters that the optimizer has,
            float32 (float64 for weights in float64); the `steps` of "moments" are a single number. Optimizers with
            decoupled weight decay add contributions "decay.…", one number per parameter.
        """
        check_all_steps_were_seen(self._optimizer, self._traces)
        params = named_parameters(self._optimizer, model)
        traces = {name: self._traces.get(param, ParameterTrace()) for name, param in params.items()}
        moved = moved_by_gradients(first_weights(start, params), params, traces)
        with float64(any(param.dtype == torch.float64 for param in params.values())):
            n = self._totals(params, traces) if self.correction.needs_trace else None
            steps = Steps(moved, self.learning_rate, float(self.steps), n, **self._gradient_means(params))
            sent = self.correction.send(steps)
            if decays_apart(self._optimizer, self._rule):
                sent = sent | decay_contributions(self.correction, steps, params, traces)
            return jax.tree.map(np.array, sent)  # copies, which the caller may change: arrays of JAX are read-only

    def count_examples(self, examples: int) -> None:
        """Says how many examples the next step's batch has, so that short batches count for less in mean gradients.

        The numbers of several calls before a step are added, for accumulated gradients; steps without a call count as
        the last one. Without any call, or for a loss that is a sum over its batch, all steps count the same.

        Args:
            examples: n_k, in this batch.
        """
        check_float("count_examples", examples)
        self._batch_weight = examples + (0.0 if self._batch_is_new else self._batch_weight)
        self._batch_is_new = False

    def clip_grad_norm_(
        self,
        parameters: Tensor | Iterable[Tensor],
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Tensor:
        """`torch.nn.utils.clip_grad_norm_`, whose factor enters the trace: unclipped gradients are reported.

        Args:
            parameters: whose gradients are clipped.
            max_norm: what their norm may be.
            norm_type: 2 for the Euclidean norm.
            error_if_nonfinite: as in PyTorch.
            foreach: as in PyTorch.

        Returns:
            The norm before clipping.
        """
        parameters = as_list(parameters)
        norm = nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        factor = min(1.0, float(max_norm) / (float(norm) + NORM_OFFSET))
        for param in parameters:
            self._clip[param] = factor * self._clip.get(param, 1.0)
        return norm

    def clip_grad_value_(
        self, parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
    ) -> None:
        """`torch.nn.utils.clip_grad_value_`, whose factors enter the trace: unclipped gradients are reported.

        Args:
            parameters: whose gradients are clipped, entry by entry.
            clip_value: their largest size.
            foreach: as in PyTorch.
        """
        parameters = as_list(parameters)
        for param in parameters:
            if param.grad is not None:
                factors = (float(clip_value) / wide(param.grad).abs()).clamp(max=1.0)
                self._clip[param] = factors * self._clip.get(param, 1.0)
        nn.utils.clip_grad_value_(parameters, clip_value, foreach)

    # --- hooks of the optimizer ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for param in group["params"]:
                if self._rule.before:
                    state = optimizer.state.get(param, {})
                    self._trace_of(param).memory["before"] = self._rule.before(group, param, state)
                if self._needs_gradients and self._rule.decay(group).coupled:
                    self._weights_before[param] = param.detach().clone()

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not was_skipped(optimizer):
            for group in optimizer.param_groups:
                trainable = [param for param in group["params"] if param.requires_grad or param.grad is not None]
                self._add_to_traces(group, trainable)
                if self._needs_gradients:
                    seen = [SeenGradient(self._sums_of(param), self._gradient(group, param)) for param in trainable]
                    add_gradients(seen, self._batch_weight, self.steps)
            self.steps += 1
        self._clip.clear()
        self._batch_is_new = True

    def _add_to_traces(self, group: Group, trainable: list[Tensor]) -> None:
        rule, decay = self._rule, self._rule.decay(group)
        stepped, steps = [], []
        for param in trainable:
            own = self._trace_of(param)
            rate = rule.rate(group, own.memory)
            s, kept = rate / self.learning_rate, 1.0 - decay.decoupled * rate
            own.rates += s
            if param.grad is None:
                continue
            own.memory["step"] += 1
            own.rates_with_gradient += s
            own.decayed = kept * own.decayed + decay.decoupled * rate
            own.decay_trace = kept * own.decay_trace + s
            if self.correction.needs_trace:
                move = rule.move(group, own.memory, self._clip.get(param, 1.0))
                untouched = None if own.unseen is None else _untouched(param, bool(decay.coupled))
                stepped.append(Stepped(param, self._optimizer.state[param], own.memory))
                steps.append(TracedStep(own, move, s, kept, untouched))
        if steps:
            beta = rule.step_momentum(group)
            add_units(steps, beta)
            if rule.preconditioner:
                add_preconditioned(steps, rule.preconditioner(group, stepped), beta)

    def _gradient(self, group: Group, param: Tensor) -> Tensor | None:
        """The gradient of the objective that is minimised: with coupled weight decay, before clipping."""
        if param.grad is None:
            return None
        gradient = dense(param.grad)
        if param in self._clip:
            gradient = gradient / self._clip[param]
        if group.get("maximize", False):
            gradient = -gradient
        decay = self._rule.decay(group).coupled
        return gradient + decay * self._weights_before[param] if decay else gradient

    def _trace_of(self, param: Tensor) -> ParameterTrace:
        if param not in self._traces:
            waits = self._from_first_gradient and self._rule.preconditioner and self.correction.needs_trace
            unseen = torch.ones_like(param, dtype=wide_type(param), requires_grad=False) if waits else None
            self._traces[param] = ParameterTrace(unseen=unseen)
        return self._traces[param]

    def _sums_of(self, param: Tensor) -> ParameterSums:
        if param not in self._sums:
            self._sums[param] = no_gradients(self.correction.needs, param)
        return self._sums[param]

    # --- what an update is made of ------------------------------------------------------------------------------------

    def _totals(self, params: dict[str, Tensor], traces: dict[str, ParameterTrace]) -> dict[str, np.ndarray]:
        """N of every parameter."""
        preconditioned = self._rule.preconditioner is not None
        return {
            name: total_trace(params[name], own, preconditioned, counts_missing=self._from_first_gradient)
            for name, own in traces.items()
        }

    def _gradient_means(self, params: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
        """ḡ, v̄ and the intercept, by their names in `Steps`."""
        if not self._needs_gradients:
            return {}
        means = {name: self._sums_of(param).means() for name, param in params.items()}
        return {kind: {name: own[kind] for name, own in means.items()} for kind in next(iter(means.values()))}


def _initial_rate(optimizer: Optimizer) -> float:
    """That of the first group; a scheduler that begins with a warm-up has kept it as `initial_lr`."""
    group = optimizer.param_groups[0]
    rate = float(group.get("initial_lr", group["lr"]))
    if not rate > 0:
        raise ValueError(f"the optimizer's first group has the learning rate {rate:g}: pass learning_rate=, clients' η")
    return rate


def _untouched(param: Tensor, decays: bool) -> Tensor:
    """1.0 for entries without a gradient, else 0.0; coupled weight decay gives one to every weight that is not 0."""
    zero = lambda tensor: torch.eq(tensor, 0, out=torch.empty_like(param, dtype=wide_type(param), requires_grad=False))
    return zero(dense(param.grad)).mul_(zero(param)) if decays else zero(dense(param.grad))
