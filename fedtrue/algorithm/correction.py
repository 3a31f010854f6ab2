"""Corrections: what a client sends, and what the server makes of the weighted means.

| correction | client sends           | server uses                                |
|------------|------------------------|--------------------------------------------|
| none       | Δ_i                    | mean Δ_i                                   |
| local      | Δ_i / N_i              | mean Δ_i / N_i                             |
| joint      | Δ_i / N_i, 1 / N_i     | mean(Δ_i / N_i) / mean(1/N_i)              |
| moments    | ḡ_i, v̄_i, τ_i          | T mean(ḡ_i) / (√V + ε), averages T, V, W   |

Δ_i = x − x_i is the client's pseudo-gradient, ḡ_i and v̄_i are the means of its gradients and of their squares. In
place of Δ_i / N_i, or of ḡ_i, a client may send another report of its gradient (`report.py`). Everything the server
needs is a weighted sum. A mean is Σ_S w_i u_i / Σ_S w_i; those of `moments` are Σ_S w_i u_i / W, W being an average of
Σ_S w_i over rounds.

With `table`, every client keeps its last report h_i and sends the change r_i − h_i, and the server adds the mean of all
clients' last reports, c = Σ p_i h_i: cohorts then differ in the changes only (SAGA, FedVARP, MIFA).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.algorithm.checks import check_float
from fedtrue.algorithm.report import SQUARE, TRACE, Report, Steps
from fedtrue.spec import FACTORIES, Part, accepts, by_name, named

Sent = dict[str, Any]  # name → what is summed over clients with their weights
WEIGHTS_BETA = 0.99  # cohorts differ in weight and steps, their mean does not: an average over about 100 rounds
SERVER_RATE = 0.003  # of moments, whose steps are about as long as the rate in every coordinate, as Adam's
EPSILON = 1e-5  # of √V: below it a coordinate's steps shrink; as the server optimizers' in the paper's grid


class Average(NamedTuple):
    """What is used in place of a value of this round, and what is kept of all rounds."""

    init: Callable[[Any], Any]  # a value, for its shape → state
    update: Callable[[Any, Any], tuple[Any, Any]]  # (state, value) → (what is used, state)


THIS_ROUND = Average(lambda like: (), lambda state, value: (value, state))


def average_over_rounds(beta: Any, lagged: bool = False) -> Average:
    """A' = β A + (1−β) value, divided by 1 − βᵗ.

    `lagged`: what is used is A of earlier rounds, or (1−β) value where that is larger; in the first round, the value.
    So what is used is never below (1−β) value, as it is for values ≥ 0 without `lagged`.
    """

    def init(like: Any) -> dict[str, Any]:
        return {"total": jax.tree.map(jnp.zeros_like, like), "weight": _number(0.0)}

    def update(state: dict[str, Any], value: Any) -> tuple[Any, dict[str, Any]]:
        total = jax.tree.map(lambda a, new: (beta * a + (1 - beta) * new).astype(a.dtype), state["total"], value)
        new = {"total": total, "weight": beta * state["weight"] + (1 - beta)}
        return _used_of_earlier(state, value) if lagged else _mean_of(new), new

    def _used_of_earlier(state: dict[str, Any], value: Any) -> Any:
        none_before = state["weight"] == 0
        floored = lambda a, new: jnp.where(none_before, new, jnp.maximum(a, (1 - beta) * new)).astype(a.dtype)
        return jax.tree.map(floored, _mean_of(state), value)

    return Average(init, update)


def sum_over_rounds(lagged: bool = False) -> Average:
    """A' = A + value. `lagged`: A of earlier rounds is used, or the value where that is larger."""

    def update(total: Any, value: Any) -> tuple[Any, Any]:
        new = jax.tree.map(jnp.add, total, value)
        return jax.tree.map(jnp.maximum, total, value) if lagged else new, new

    return Average(lambda like: jax.tree.map(jnp.zeros_like, like), update)


def _mean_of(state: dict[str, Any]) -> Any:
    weight = jnp.where(state["weight"] > 0, state["weight"], 1)
    return jax.tree.map(lambda a: (a / weight).astype(a.dtype), state["total"])


@dataclass(frozen=True, eq=False, repr=False)
class Correction(Part):
    """A client's half and the server's half. Both must work on any tree of weights, a single vector included.

    These functions are all that `diagnose` needs to take a round apart, for a correction of your own too. `receive` is
    given what it returned in the round before as its second argument, and `init` makes the first of these.

    >>> import fedtrue as ft
    >>> halved = ft.Correction(
    ...     send=lambda steps: {"update": steps.pseudo_gradient},
    ...     receive=lambda mean, state: (0.5 * mean["update"], state),
    ... )
    >>> method = ft.fedopt(ft.client.sgd(0.1), correction=halved)
    """

    send: Callable[[Steps], Sent]  # what a client's steps came to → what is summed
    receive: Callable[[Sent, Any], tuple[Any, Any]]  # (weighted means, state) → (pseudo-gradient, state)
    init: Callable[[Any, Callable[[], Any]], Any] = (
        lambda params, no_trace: ()
    )  # state before round 0; no_trace(): N = 0
    needs: frozenset[str] = frozenset()  # what `send` looks at besides Δ, η and τ: "trace", "mean", "square", "slope"
    multiplies_by_trace: bool = False  # a report that was not divided by N is multiplied by a mean of N
    table: str | None = None  # which of what is sent every client keeps, and sends the change of
    scales: frozenset[str] = frozenset()  # which of what is sent is not below 0 and divides: never made sparse
    means: frozenset[str] = frozenset()  # which is needed as a mean over those that sent it, whatever the sampling
    denominator: Average = THIS_ROUND  # what weighted sums are divided by: the weight of this round's clients
    server_rate: float = 1.0  # of server SGD, to begin with

    @property
    def needs_trace(self) -> bool:
        return TRACE in self.needs


@named("correction")
def none() -> Correction:
    """mean Δ_i."""
    return Correction(lambda steps: {"update": steps.pseudo_gradient}, _mean_update)


@named("correction", defaults=False)
def local(report: Report = by_name("update"), table: bool = False) -> Correction:
    """mean N_i⁻¹ Δ_i, or η times the mean of another report of the clients' gradients."""
    send = lambda steps: {"update": report.update(steps)}
    return Correction(send, _mean_update, needs=report.needs, table="update" if table else None)


@named("correction", defaults=False)
def joint(report: Report = by_name("update"), beta: float | None = None, table: bool = False) -> Correction:
    """(mean N_i⁻¹)⁻¹ mean N_i⁻¹ Δ_i; with `beta`, the denominator is averaged over rounds.

    D' = β D + (1−β) mean N_i⁻¹, divided by 1 − βᵗ. A mean over many rounds is nearly the same for every cohort, so the
    quotient has nearly no ratio bias; the update is at most 1/(1−β) times as large as without averaging.
    """

    def send(steps: Steps) -> Sent:
        return {"update": report.update(steps), "inverse_trace": linear.inverse(steps.trace)}

    def receive(mean: Sent, state: Any) -> tuple[Any, Any]:
        denominator = mean["inverse_trace"]
        if state:  # the trace of a weight decay has none: it is a number, and the same for all cohorts
            denominator, state = average.update(state, denominator)
        return linear.apply(linear.inverse(denominator), mean["update"]), state

    if beta is not None:
        check_float("joint: beta", beta, high=1.0)
    average = THIS_ROUND if beta is None else average_over_rounds(beta)
    init = (lambda params, no_trace: ()) if beta is None else (lambda params, no_trace: average.init(no_trace()))
    return Correction(
        send,
        receive,
        init,
        report.needs | {TRACE},
        not report.by_trace,
        table="update" if table else None,
        scales=frozenset({"inverse_trace"}),
    )


@named("correction", defaults=False)
def moments(
    report: Report = by_name("mean_gradient"),
    beta: float = 0.8,
    epsilon: float = EPSILON,
    lagged: bool = False,
    table: bool = False,
    cumulative: bool = False,
) -> Correction:
    """T Σ w_i ḡ_i / (W (√V + ε)): clients report what they saw, and the server takes its scale from their squares.

    V, T and W are averages over rounds of Σ w_i v̄_i / W, with β, and of Σ w_i τ_i / W and Σ w_i, over about 100 rounds.
    Preconditioners stay on the clients, so no trace is needed. A cohort with little data makes a short step: divided by
    its own weight S = Σ w_i, its noisy mean would be scaled like any other. (Σ w_i ḡ_i)² ≤ S Σ w_i v̄_i ≤ S W V/(1−β),
    so no coordinate moves by more than α T √(S/W) / √(1−β).

    `lagged`: V, T and W are those of earlier rounds, so they do not depend on the gradients that they scale. Where the
    share of this round in an average is larger it takes their place, which keeps the bound: else a coordinate that was
    absent so far would be divided by ε.

    `cumulative`: V is the sum over rounds instead of their average, as Adagrad's. Steps then shrink with the square
    root of the number of rounds, so noise averages out at a constant rate, and the share of this round in V vanishes.
    """
    check_float("moments: beta", beta, high=1.0)
    check_float("moments: epsilon", epsilon)
    of_squares = sum_over_rounds(lagged) if cumulative else average_over_rounds(beta, lagged)
    of_weights = average_over_rounds(WEIGHTS_BETA, lagged)

    def send(steps: Steps) -> Sent:
        return {"gradient": report.gradient(steps), "square": steps.mean_square, "steps": _number(steps.count)}

    def receive(mean: Sent, state: Any) -> tuple[Any, Any]:
        v, squares = of_squares.update(state["square"], mean["square"])
        t, steps = of_weights.update(state["steps"], mean["steps"])
        scaled = lambda g, v: (t * g / (jnp.sqrt(v) + epsilon)).astype(g.dtype)
        return jax.tree.map(scaled, mean["gradient"], v), {"square": squares, "steps": steps}

    def init(params: Any, no_trace: Callable[[], Any]) -> Any:
        return {"square": of_squares.init(params), "steps": of_weights.init(_number(0.0))}

    return Correction(
        send,
        receive,
        init,
        report.needs | {SQUARE},
        table="gradient" if table else None,
        scales=frozenset({"square", "steps"}),
        denominator=of_weights,
        server_rate=SERVER_RATE,
    )


def _mean_update(mean: Sent, state: Any) -> tuple[Any, Any]:
    return mean["update"], state


def _number(value: Any) -> Any:
    return jnp.asarray(value, jnp.result_type(float))


CORRECTIONS = FACTORIES["correction"]
accepts("correction", Correction, '"joint"')
