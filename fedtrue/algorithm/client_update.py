"""The local steps of one client: Algorithm 1's inner loop, and the rules that other methods add to it.

g_k = ∇F_i(x_k; batch_k) + term + μ (x_k − x)         P_k, state ← precondition(g_k)
      − ∇F_i(x; batch_k), with `control`
x_{k+1} = x_k − γ_i η (move(g_k, P_k) + step_term)    N ← N + move(1, P_k)

`step_options.py` says what schedules within the round, clipping and weight decay add to it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.client_optimizer import ClientOptimizer
from fedtrue.algorithm.correction import Correction, Sent
from fedtrue.algorithm.interface import (
    EXACT,
    METHOD,
    OBJECTIVE,
    SCALE,
    STATE,
    UPDATE,
    Broadcast,
    Client,
    ClientOutput,
    ClientWork,
    Context,
    Contribution,
    Loss,
)
from fedtrue.algorithm.report import MEAN, TRACE, Steps, add_gradient, gradient_means, no_gradients
from fedtrue.algorithm.step_options import StepFactors, clip_factors
from fedtrue.algorithm.trace import Step, Trace
from fedtrue.spec import by_name

CLIENT_STATES = {
    "restart": "every round from the optimizer's constants (the paper's proposal)",
    "sync": "from the weighted mean of last round's preconditioner states; momentum restarts",
    "inherit": "from the client's own last state, kept between rounds",
}
DECAY = "decay."  # before the names of what is sent of the weight decay


Report: TypeAlias = Callable[[Broadcast, Any, Steps, Client], tuple[dict[str, Contribution], Any]]


class LocalRule(NamedTuple):
    """What a method adds to its clients' steps."""

    pull: Any = None  # μ of a proximal term μ/2 ‖x_k − x‖²
    term: Callable[[Broadcast, Any], Any] | None = None  # (broadcast, memory) → what is added to every gradient
    needs_trace: bool = False  # whether `report` looks at the trace N
    needs_gradient_at_start: bool = False  # whether it looks at the mean gradient at x: one more gradient per step
    needs_mean_gradient: bool = False  # whether it looks at ḡ, the mean of the loss's gradients along the path
    init_memory: Callable[[Broadcast], Any] | None = None  # what a client keeps for the rule between rounds
    report: Report | None = None  # (broadcast, memory, steps, client) → (contributions besides the update, new memory)
    control: bool = False  # subtract the gradient of the same batch at x, so that `term` takes its place (SVRG)
    begin: Callable[[Broadcast], dict[str, Any]] | None = None  # {"optimizer", "move"}: states before the first step
    step_term: Callable[[Broadcast], Any] | None = None  # what is added to every step, behind the preconditioner

    @property
    def corrects(self) -> bool:
        """Whether clients add to their gradients what they learn from round to round: control variates."""
        return self.term is not None and self.init_memory is not None


class ClientParts(NamedTuple):
    """What the clients of a method are made of: all that theory and diagnosis need to take their work apart."""

    optimizer: ClientOptimizer  # one of `ft.client`
    trace: Trace = by_name("first_gradient")  # how the preconditioners are summed
    correction: Correction = by_name("none")  # what is sent of the update
    client_state: str = "restart"  # where the optimizer's state comes from: restart, sync, inherit
    rule: LocalRule = LocalRule()  # what the method adds to the steps

    @property
    def remembers(self) -> bool:
        """Whether clients keep something between rounds."""
        return self.client_state == "inherit" or self.rule.init_memory is not None or self.correction.table is not None

    @property
    def needs(self) -> frozenset[str]:
        """What is gathered during the steps: for the correction, and for the method's rule."""
        of_rule = {TRACE: self.rule.needs_trace, MEAN: self.rule.needs_mean_gradient}
        return self.correction.needs | {what for what, needed in of_rule.items() if needed}

    @property
    def traced(self) -> bool:
        return TRACE in self.needs


class ClientState(NamedTuple):
    """A client in the middle of its local steps."""

    params: Any
    optimizer: Any  # the preconditioner's state
    move: Any  # the move's memory
    trace: Any
    gradients: Any  # sums of the gradients, as far as the correction needs them
    rule: Any  # {"memory", "term", "gradients", "reported"}, as far as the rule and the correction have them
    metric_sums: Any  # of its batches
    clock: Any = ()  # with a schedule within the round: the number of the step, and of all its steps
    decayed: Any = ()  # with weight decay: S, which times γ_i η λ is the share of x that it has taken off


def client_work(loss: Loss, parts: ClientParts) -> ClientWork:
    """The client's part of a phase: start, step, finish."""
    return ClientWork(
        partial(_init_memory, parts), partial(_start, loss, parts), partial(_step, loss, parts), partial(_finish, parts)
    )


def _fresh(parts: ClientParts, params: Any, client: Any) -> dict[str, Any]:
    """The optimizer's state, the move's memory and the trace's memory before the first step."""
    optimizer, trace = parts.optimizer, parts.trace
    return {
        "optimizer": optimizer.init(params, client),
        "move": optimizer.move.init(params),
        "trace": trace.init_memory(optimizer, params, parts.rule.pull is not None) if parts.traced else (),
    }


def _init_memory(parts: ClientParts, broadcast: Broadcast, client: Any) -> Any:
    own = _fresh(parts, broadcast.params, client) if parts.client_state == "inherit" else ()
    reported = jax.tree.map(jnp.zeros_like, broadcast.params) if parts.correction.table else ()
    return _memory(own, parts.rule.init_memory(broadcast) if parts.rule.init_memory else (), reported)


def _start(loss: Loss, parts: ClientParts, broadcast: Broadcast, client: Client, memory: Any) -> ClientState:
    begin, rule = _fresh(parts, broadcast.params, client.index), parts.rule
    if parts.client_state == "sync":
        begin = {**begin, **broadcast.shared}
    if parts.client_state == "inherit" and memory:  # an optimizer without a state leaves nothing to inherit
        begin = memory["own"]
    if rule.begin:
        begin = {**begin, **rule.begin(broadcast)}
    n = parts.trace.init(parts.optimizer, broadcast.params, begin["optimizer"], begin["trace"]) if parts.traced else ()
    kept = memory["rule"] if rule.init_memory else ()
    added = {
        "memory": kept,
        "term": rule.term(broadcast, kept) if rule.term else (),
        "gradients": no_gradients(frozenset({MEAN}), broadcast.params) if rule.needs_gradient_at_start else (),
        "reported": memory["reported"] if parts.correction.table else (),
    }
    gradients = no_gradients(parts.needs, broadcast.params)
    options = parts.optimizer.options
    clock = (jnp.int32(0), client.steps) if options.within_round else ()
    decayed = () if options.weight_decay is None else jnp.zeros(())
    return ClientState(
        broadcast.params, begin["optimizer"], begin["move"], n, gradients, added, loss.no_sums, clock, decayed
    )


def _step(
    loss: Loss, parts: ClientParts, broadcast: Broadcast, state: ClientState, batch: Any, learning_rate: Any
) -> ClientState:
    optimizer, rule, decay = parts.optimizer, parts.rule, parts.optimizer.options.weight_decay
    (_, sums), gradient = loss.gradient(state.params, batch)
    gradients = add_gradient(state.gradients, gradient, batch_weight(loss, batch)) if state.gradients else ()
    before = state.optimizer
    if optimizer.observe:
        before = optimizer.observe(before, state.params, gradient, lambda x: loss.gradient(x, batch)[1])
    at_start = loss.gradient(broadcast.params, batch)[1] if rule.needs_gradient_at_start or rule.control else None
    if rule.control:
        gradient = jax.tree.map(jnp.subtract, gradient, at_start)
    gradient = _added(gradient, parts, state, broadcast, learning_rate)
    by = _step_factors(parts, state, gradient, learning_rate)
    if by.clip is not None:
        gradient = linear.apply(by.clip, gradient)
    p, optimizer_state = optimizer.precondition(gradient, before)
    move, memory = optimizer.move.step(gradient, p, optimizer_state, state.move)
    if rule.step_term:
        move = jax.tree.map(lambda s, added: s + added.astype(s.dtype), move, rule.step_term(broadcast))
    if decay is not None:
        move = jax.tree.map(lambda s, x: s + (decay * x).astype(s.dtype), move, state.params)
    rate = learning_rate if by.rate is None else learning_rate * by.rate
    pull = None if rule.pull is None else rule.pull * learning_rate
    added = dict(state.rule)
    if rule.needs_gradient_at_start:
        added["gradients"] = add_gradient(state.rule["gradients"], at_start, batch_weight(loss, batch))
    return ClientState(
        jax.tree.map(lambda x, s: x - (rate * s).astype(x.dtype), state.params, move),
        optimizer_state,
        memory,
        parts.trace.update(optimizer, Step(gradient, p, optimizer_state, pull, by), state.trace)
        if parts.traced
        else (),
        gradients,
        added,
        jax.tree.map(jnp.add, state.metric_sums, sums),
        (state.clock[0] + 1, state.clock[1]) if state.clock else (),
        () if decay is None else (by.kept * state.decayed + by.rate).astype(state.decayed.dtype),
    )


def _step_factors(parts: ClientParts, state: ClientState, gradient: Any, learning_rate: Any) -> StepFactors:
    """c_k, s_k and a_k, as far as the optimizer's options need them; s_k is 1 where a_k needs it."""
    options = parts.optimizer.options
    rate = options.within_round(*state.clock) if options.within_round else None
    if options.weight_decay is None:
        return StepFactors(clip_factors(options, gradient), rate)
    rate = 1.0 if rate is None else rate
    return StepFactors(clip_factors(options, gradient), rate, 1 - learning_rate * rate * options.weight_decay)


def _finish(
    parts: ClientParts, broadcast: Broadcast, state: ClientState, client: Client, context: Context
) -> ClientOutput:
    trace, correction, rule = parts.trace, parts.correction, parts.rule
    pseudo_gradient = jax.tree.map(jnp.subtract, broadcast.params, state.params)
    n = jax.tree.map(lambda n: client.rate_multiplier * n, trace.total(state.trace)) if parts.traced else None
    decay: Sent = {}
    if parts.optimizer.options.weight_decay is not None:
        pseudo_gradient, decay = _without_decay(parts, broadcast, state, client, pseudo_gradient)
    steps = Steps(pseudo_gradient, client.learning_rate, client.steps, n, **gradient_means(state.gradients))
    sent = correction.send(steps)
    role = lambda name: SCALE if name in correction.scales else UPDATE
    weighting = lambda name: STATE if name in correction.means else METHOD
    contributions = {name: Contribution(value, weighting(name), role(name)) for name, value in sent.items()}
    reported: Any = ()
    if correction.table:
        reported = sent[correction.table]
        change = jax.tree.map(jnp.subtract, reported, state.rule["reported"])
        contributions[correction.table] = Contribution(change, OBJECTIVE)
    contributions |= {DECAY + name: Contribution(value, role=role(name)) for name, value in decay.items()}
    if parts.client_state == "sync":
        contributions["optimizer_state"] = Contribution(state.optimizer, STATE, EXACT)
    own: Any = ()
    if parts.client_state == "inherit":
        ones = trace.keep(state.trace) if parts.traced else ()
        own = {"optimizer": state.optimizer, "move": state.move, "trace": ones}
    kept: Any = ()
    if rule.report:
        at_start = gradient_means(state.rule["gradients"]).get("mean_gradient", ())
        steps = steps._replace(gradient_at_start=at_start, optimizer=state.optimizer, move=state.move)
        added, kept = rule.report(broadcast, state.rule["memory"], steps, client)
        contributions |= added
    return ClientOutput(contributions, state.metric_sums, _memory(own, kept, reported), all_finite(contributions))


def _without_decay(
    parts: ClientParts, broadcast: Broadcast, state: ClientState, client: Client, pseudo_gradient: Any
) -> tuple[Any, Sent]:
    """Δ without what weight decay took off x, and what is sent of that: its share of x, with its own trace S."""
    s = client.rate_multiplier * state.decayed
    share = client.learning_rate * parts.optimizer.options.weight_decay * s  # 1 − Π a_k, without its cancellation
    by_gradients = jax.tree.map(lambda d, x: d - (share * x).astype(d.dtype), pseudo_gradient, broadcast.params)
    return by_gradients, parts.correction.send(Steps(share, client.learning_rate, client.steps, s))


def _memory(own: Any, rule: Any, reported: Any) -> Any:
    """What a client keeps: of its optimizer, for the method's rule, and its last report; () if it keeps nothing."""
    kept = {"own": own, "rule": rule, "reported": reported}
    return kept if jax.tree.leaves(kept) else ()


def _added(gradient: Any, parts: ClientParts, state: ClientState, broadcast: Broadcast, learning_rate: Any) -> Any:
    """g + term + μ (x_k − x); under weight decay x is where the decay alone would have brought it."""
    rule, decay = parts.rule, parts.optimizer.options.weight_decay
    if rule.term:
        gradient = jax.tree.map(jnp.add, gradient, state.rule["term"])
    if rule.pull is not None:
        mu = rule.pull
        share = None if decay is None else learning_rate * decay * state.decayed
        anchor = lambda x: x if share is None else x - (share * x).astype(x.dtype)
        pulled = lambda g, now, x: g + (mu * (now - anchor(x))).astype(g.dtype)
        gradient = jax.tree.map(pulled, gradient, state.params, broadcast.params)
    return gradient


def batch_weight(loss: Loss, batch: Any) -> Any:
    """n_k: the batch's examples, so that short batches count for less; 1 if the loss is already a sum over them."""
    return jnp.ones(()) if loss.summed else jnp.sum(batch["mask"])


def client_update(
    work: ClientWork,
    broadcast: Broadcast,
    client: Client,
    memory: Any,
    batch_at: Callable[[Any], Any],
    context: Context,
) -> ClientOutput:
    """All local steps of one client on `batch_at(0), batch_at(1), …`."""
    rate = client.rate_multiplier * client.learning_rate
    state = work.start(broadcast, client, memory)
    steps = jax.lax.fori_loop(0, client.steps, lambda k, s: work.step(broadcast, s, batch_at(k), rate), state)
    return work.finish(broadcast, steps, client, context)


def all_finite(tree: Any) -> Any:
    """True when no number in the tree is NaN or infinite."""
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]).all()
