"""A compiled function whose operations are lowered by the platform's rules.

JAX can lower one program with other rules than its own. That holds for this program alone: whatever else is compiled in
the same process stays as it is. The parameter that carries the rules is not public. If a version of JAX does not have
it, programs are compiled by JAX's own rules, and a warning says so once.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax

from fedtrue.lowering.rules import RULES, Rule


class Program:
    """`jax.jit(function)`, lowered by the rules of `platform`; compiled anew for arguments of other shapes.

    >>> import jax.numpy as jnp
    >>> double = Program(lambda x: 2 * x)
    >>> double(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    """

    def __init__(self, function: Callable[..., Any], donate_argnums: Sequence[int] = (), platform: str | None = None):
        self._jitted = jax.jit(function, donate_argnums=tuple(donate_argnums))
        self._platform = platform or jax.default_backend()
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return self._jitted(*arguments)
        signature = _signature(arguments)
        if signature not in self._compiled:
            self._compiled[signature] = self.lower(*arguments).compile()
        return self._compiled[signature](*arguments)

    @property
    def compilations(self) -> int:
        """How many programs were compiled so far."""
        return len(self._compiled)

    def lower(self, *arguments: Any) -> Any:
        """The program for these arguments, not yet compiled."""
        rules = overrides(self._platform)
        if not rules:
            return self._jitted.lower(*arguments)
        from jax._src.interpreters.mlir import LoweringParameters

        parameters = LoweringParameters(override_lowering_rules=rules)  # type: ignore[arg-type] # means tuple[…, ...]
        return self._jitted.trace(*arguments).lower(_private_parameters=parameters)


def _signature(arguments: Any) -> Any:
    leaves, tree = jax.tree.flatten(arguments)
    return tree, tuple((jax.typeof(leaf), getattr(leaf, "sharding", None)) for leaf in leaves)


@cache
def overrides(platform: str) -> tuple[tuple[Any, Any], ...]:
    """(primitive, lowering rule) of a platform, in the form that JAX takes; empty where JAX does not take them."""
    if reason := unavailable():
        warnings.warn(
            f"fedtrue's lowering rules are off: {reason}; models with convolutions train slower", stacklevel=2
        )
        return ()
    return tuple(
        (primitive, _lowering(primitive, rules, platform)) for primitive, rules in RULES.get(platform, {}).items()
    )


@cache
def unavailable() -> str | None:
    """Why the rules cannot be used with this version of JAX; None: they can."""
    try:
        from jax._src.interpreters import mlir

        mlir.LoweringParameters(override_lowering_rules=None)
        assert callable(mlir.lower_fun)
        assert callable(_default_rule(jax.lax.conv_general_dilated_p, "cpu"))
        jax.jit(lambda x: x).trace(0.0).lower(_private_parameters=mlir.LoweringParameters())
    except Exception as error:  # whatever a future version has changed
        return f"JAX {jax.__version__} lowers programs in another way ({type(error).__name__}: {error})"
    return None


def _lowering(primitive: Any, rules: Sequence[Rule], platform: str) -> Callable[..., Any]:
    """The first rule that applies, else JAX's own."""
    from jax._src.interpreters import mlir

    def lower(context: Any, *operands: Any, **params: Any) -> Any:
        for rule in rules:
            if not context.tokens_in and rule.applies(context.avals_in, params):
                return mlir.lower_fun(rule.function, primitive.multiple_results)(context, *operands, **params)
        return _default_rule(primitive, platform)(context, *operands, **params)

    return lower


def _default_rule(primitive: Any, platform: str) -> Any:
    from jax._src.interpreters import mlir

    platform_rules = mlir._platform_specific_lowerings.get(platform, {})
    rule = platform_rules.get(primitive) or mlir._lowerings[primitive]
    return getattr(rule, "rule", rule)
