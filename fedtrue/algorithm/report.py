"""Reports: what a client's local steps say about its gradient at the server's weights, ∇F_i(x).

| report        | estimate of ∇F_i(x)                          | its error                                    |
|---------------|----------------------------------------------|----------------------------------------------|
| update        | Δ / (η N): what it moved, by the trace       | P depends on the gradient that it multiplies |
| mean_gradient | ḡ = Σ n_k g_k / Σ n_k: what it saw           | the drift away from x, of order η            |
| intercept     | the line through g_k over k, at k = 0        | of order η² for steps of equal length        |

n_k is the number of examples in the k-th batch (1 if the loss is a sum over the batch), so that every example counts
the same. Gradients are those of the loss: neither clipped, nor with what a method adds to them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedtrue.algorithm import linear
from fedtrue.spec import FACTORIES, Part, accepts, named

TRACE, MEAN, SQUARE, SLOPE = "trace", "mean", "square", "slope"  # what a report or a correction needs of the steps


class Steps(NamedTuple):
    """What a client's local steps came to; None where nobody needs it."""

    pseudo_gradient: Any  # Δ = x − x_i, without what weight decay took off
    learning_rate: Any = 1.0  # η of this round
    count: Any = 1.0  # τ_i
    trace: Any = None  # N
    mean_gradient: Any = None  # ḡ
    mean_square: Any = None  # v̄ = Σ n_k g_k² / Σ n_k
    intercept: Any = None  # of the line through g_k over k
    gradient_at_start: Any = ()  # the mean gradient of its batches at x
    optimizer: Any = ()  # the optimizer's state after the last step, for a method's own `report`
    move: Any = ()  # the move's memory after it: momentum


class GradientSums(NamedTuple):
    """Sums over the steps so far, each gradient weighted with n_k; () where nobody needs one."""

    weights: Any  # Σ n_k, Σ n_k k, Σ n_k k²
    mean: Any  # Σ n_k g_k
    square: Any  # Σ n_k g_k²
    slope: Any  # Σ n_k k g_k
    index: Any  # k of the next step


def no_gradients(needs: frozenset[str], params: Any) -> GradientSums | tuple[()]:
    """The sums before the first step; () if no gradient is needed."""
    if not needs & {MEAN, SQUARE, SLOPE}:
        return ()
    zeros = lambda name: jax.tree.map(jnp.zeros_like, params) if name in needs else ()
    return GradientSums((jnp.zeros(()),) * 3, zeros(MEAN), zeros(SQUARE), zeros(SLOPE), jnp.zeros(()))


def add_gradient(sums: GradientSums, gradient: Any, weight: Any) -> GradientSums:
    """The sums with one more gradient, of weight n_k."""
    k = sums.index

    def plus(total: Any, factor: Any, power: int = 1) -> Any:
        term = lambda t, g: t + (factor * g**power).astype(t.dtype)
        return jax.tree.map(term, total, gradient) if jax.tree.leaves(total) else ()

    return GradientSums(
        tuple(total + weight * k**power for power, total in enumerate(sums.weights)),
        plus(sums.mean, weight),
        plus(sums.square, weight, power=2),
        plus(sums.slope, weight * k),
        k + 1,
    )


def gradient_means(sums: GradientSums | tuple[()]) -> dict[str, Any]:
    """ḡ, v̄ and the intercept, as far as they were summed, by their names in `Steps`."""
    if not isinstance(sums, GradientSums):
        return {}
    weight = jnp.maximum(sums.weights[0], 1)
    mean = lambda tree: jax.tree.map(lambda leaf: (leaf / weight).astype(leaf.dtype), tree)
    totals = {"mean_gradient": sums.mean, "mean_square": sums.square}
    means = {name: mean(tree) for name, tree in totals.items() if jax.tree.leaves(tree)}
    return {**means, "intercept": _intercept(sums, means["mean_gradient"])} if jax.tree.leaves(sums.slope) else means


def _intercept(sums: GradientSums, mean: Any) -> Any:
    """ḡ − k̄ s, with the slope s = Σ n_k (k − k̄) g_k / Σ n_k (k − k̄)²; ḡ for a single step."""
    total, first, second = sums.weights
    middle = first / jnp.maximum(total, 1)  # k̄
    spread = second - first * middle
    back = jnp.where(spread > 0, middle / jnp.where(spread > 0, spread, 1), 0)
    at_start = lambda g, kg, sum_g: g - (back * (kg - middle * sum_g)).astype(g.dtype)
    return jax.tree.map(at_start, mean, sums.slope, sums.mean)


@dataclass(frozen=True, eq=False, repr=False)
class Report(Part):
    """An estimate of a client's gradient at x, from its local steps."""

    needs: frozenset[str]  # of TRACE, MEAN, SQUARE, SLOPE
    update: Callable[[Steps], Any]  # η ∇F_i(x): what a step of SGD would move
    gradient: Callable[[Steps], Any]  # ∇F_i(x)
    by_trace: bool = False  # whether it was divided by the trace, so that its product with N is what the client moved


@named("report")
def update() -> Report:
    """Δ_i / N_i: what the client moved, divided by the trace of its preconditioners."""

    def moved(steps: Steps) -> Any:
        return linear.apply(linear.inverse(steps.trace), steps.pseudo_gradient)

    def gradient(steps: Steps) -> Any:
        rate = steps.learning_rate
        inverse_rate = jnp.where(rate > 0, 1 / jnp.where(rate > 0, rate, 1), 0)
        return jax.tree.map(lambda leaf: (inverse_rate * leaf).astype(leaf.dtype), moved(steps))

    return Report(frozenset({TRACE}), moved, gradient, by_trace=True)


@named("report")
def mean_gradient() -> Report:
    """ḡ_i: the mean of the gradients along the client's path."""
    return _seen(lambda steps: steps.mean_gradient, MEAN)


@named("report")
def intercept() -> Report:
    """The line through the client's gradients over its steps, at its start."""
    return _seen(lambda steps: steps.intercept, MEAN, SLOPE)


def _seen(gradient: Callable[[Steps], Any], *needs: str) -> Report:
    """A report of gradients; times η it has the units of an update."""

    def update(steps: Steps) -> Any:
        return jax.tree.map(lambda g: (steps.learning_rate * g).astype(g.dtype), gradient(steps))

    return Report(frozenset(needs), update, gradient)


REPORTS = FACTORIES["report"]
accepts("report", Report, '"mean_gradient"')
