"""Corrections: what a client sends, and what the server makes of the weighted means.

| correction | client sends       | server uses                   |
|------------|--------------------|-------------------------------|
| none       | Δ_i                | mean Δ_i                      |
| local      | Δ_i / N_i          | mean Δ_i / N_i                |
| joint      | Δ_i / N_i, 1 / N_i | mean(Δ_i / N_i) / mean(1/N_i) |

Δ_i = x − x_i is the client's pseudo-gradient. Everything the server needs is a weighted sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedtrue.algorithm import linear
from fedtrue.spec import FACTORIES, Part, accepts, named

Sent = dict[str, Any]  # name → what is summed over clients with their weights


@dataclass(frozen=True, eq=False, repr=False)
class Correction(Part):
    """A client's half and the server's half. Both must work on any tree of weights, a single vector included.

    These two functions are all that `diagnose` needs to take a round apart, for a correction of your own too.

    >>> import fedtrue as ft
    >>> halved = ft.Correction(
    ...     needs_trace=False,
    ...     send=lambda pseudo_gradient, n: {"update": pseudo_gradient},
    ...     receive=lambda mean: 0.5 * mean["update"],
    ... )
    >>> method = ft.fedopt(ft.client.sgd(0.1), correction=halved)
    """

    needs_trace: bool  # whether `send` looks at N
    send: Callable[[Any, Any], Sent]  # (pseudo_gradient, trace N) → what is summed
    receive: Callable[[Sent], Any]  # weighted means → the pseudo-gradient for the server optimizer


@named("correction")
def none() -> Correction:
    """mean Δ_i."""
    return Correction(False, lambda pseudo_gradient, n: {"update": pseudo_gradient}, lambda mean: mean["update"])


@named("correction")
def local() -> Correction:
    """mean N_i⁻¹ Δ_i."""
    return Correction(
        True, lambda pseudo_gradient, n: {"update": linear.apply(linear.inverse(n), pseudo_gradient)}, none().receive
    )


@named("correction")
def joint() -> Correction:
    """(mean N_i⁻¹)⁻¹ mean N_i⁻¹ Δ_i."""

    def send(pseudo_gradient: Any, n: Any) -> Sent:
        inverse_trace = linear.inverse(n)
        return {"update": linear.apply(inverse_trace, pseudo_gradient), "inverse_trace": inverse_trace}

    def receive(mean: Sent) -> Any:
        return linear.apply(linear.inverse(mean["inverse_trace"]), mean["update"])

    return Correction(True, send, receive)


CORRECTIONS = FACTORIES["correction"]
accepts("correction", Correction, '"joint"')
