"""How a user's function is called: does it take a random key, and is it told whether it trains?

It takes a key if it has a parameter called `key`, or one more required positional parameter than it needs. In
evaluation the key is None. It is told whether it trains if it has a parameter of one of the names in MODE_NAMES.
"""

import inspect
from collections.abc import Callable
from typing import Any

MODE_NAMES = {"train": True, "training": True, "is_training": True, "deterministic": False, "inference": False}
# name → its value in training; in evaluation it has the other one


def first_line(error: Exception) -> str:
    """What an error of a user's function or library says, for an error message of one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """By name; {} for a function without a signature, such as some built-in ones."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def takes_key(function: Callable[..., Any], arguments: int) -> bool:
    """Whether a function of so many arguments takes a random key as well.

    >>> takes_key(lambda params, example: 0.0, 2), takes_key(lambda params, example, noise: 0.0, 2)
    (False, True)
    """
    parameters = parameters_of(function)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in positional and parameter.default is inspect.Parameter.empty and name not in MODE_NAMES
    ]
    return "key" in parameters or len(required) == arguments + 1


def with_key(function: Callable[..., Any], arguments: int) -> Callable[..., Any]:
    """`function(*arguments, key)` for a function with or without a key: the key is left out if it takes none."""
    if not takes_key(function, arguments):
        return lambda *values, **more: function(*values[:-1], **more)
    parameter = parameters_of(function).get("key")
    if parameter is not None and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
        return lambda *values, **more: function(*values[:-1], key=values[-1], **more)
    return function


def mode_name(names: Any) -> str | None:
    """The first of MODE_NAMES among some names of parameters."""
    return next((name for name in MODE_NAMES if name in names), None)


def mode_arguments(function: Callable[..., Any], training: bool) -> dict[str, bool]:
    """The keyword argument that tells a function whether it trains; {} if it has none.

    >>> mode_arguments(lambda x, deterministic: x, training=True)
    {'deterministic': False}
    """
    name = mode_name(parameters_of(function))
    return {} if name is None else {name: MODE_NAMES[name] == training}
