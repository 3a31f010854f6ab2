"""Which operations of a function are slow inside a loop, because no rule applies to them."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import lax
from jax.extend.core import jaxprs_in_params

from fedtrue.lowering.convolution import is_not_canonical
from fedtrue.lowering.program import unavailable
from fedtrue.lowering.rules import RULES


def slow_in_loops(function: Callable[..., Any], *arguments: Any, platform: str) -> bool:
    """Whether the function has a convolution that the compiler runs slower inside a loop than alone.

    That is so on CPUs, for convolutions whose axes are not in canonical order, where our rules do not reorder them.

    >>> import jax.numpy as jnp
    >>> slow_in_loops(jnp.tanh, jnp.zeros(2), platform="cpu")
    False
    """
    if platform != "cpu":
        return False
    equations = _equations(jax.make_jaxpr(function)(*arguments).jaxpr)
    return any(e.primitive is lax.conv_general_dilated_p and not _is_fast(e) for e in equations)


def _is_fast(equation: Any) -> bool:
    avals = [variable.aval for variable in equation.invars]
    if not is_not_canonical(avals, equation.params):
        return True
    rules = () if unavailable() else RULES["cpu"][equation.primitive]
    return any(rule.applies(avals, equation.params) for rule in rules)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, also those of loops and calls inside."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(getattr(inner, "jaxpr", inner))
