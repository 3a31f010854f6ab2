"""Corrections: what a client sends, and what the server makes of the weighted means.

| correction | client sends       | server uses                   |
|------------|--------------------|-------------------------------|
| none       | Δ_i                | mean Δ_i                      |
| local      | Δ_i / N_i          | mean Δ_i / N_i                |
| joint      | Δ_i / N_i, 1 / N_i | mean(Δ_i / N_i) / mean(1/N_i) |

Δ_i = x − x_i is the client's pseudo-gradient. Everything the server needs is a weighted sum.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedtrue.algorithm import linear

Contribution = dict[str, Any]


class Correction(NamedTuple):
    """A client's half and the server's half."""

    needs_trace: bool
    send: Callable[[Any, Any], Contribution]  # (pseudo_gradient, trace N) → what is summed
    receive: Callable[[Contribution], Any]  # weighted means → the pseudo-gradient for the server optimizer


def none() -> Correction:
    """mean Δ_i."""
    return Correction(False, lambda pseudo_gradient, n: {"update": pseudo_gradient}, lambda mean: mean["update"])


def local() -> Correction:
    """mean N_i⁻¹ Δ_i."""
    return Correction(
        True, lambda pseudo_gradient, n: {"update": linear.apply(linear.inverse(n), pseudo_gradient)}, none().receive
    )


def joint() -> Correction:
    """(mean N_i⁻¹)⁻¹ mean N_i⁻¹ Δ_i."""

    def send(pseudo_gradient: Any, n: Any) -> Contribution:
        inverse_trace = linear.inverse(n)
        return {"update": linear.apply(inverse_trace, pseudo_gradient), "inverse_trace": inverse_trace}

    def receive(mean: Contribution) -> Any:
        return linear.apply(linear.inverse(mean["inverse_trace"]), mean["update"])

    return Correction(True, send, receive)


CORRECTIONS: dict[str, Callable[[], Correction]] = {"none": none, "local": local, "joint": joint}
