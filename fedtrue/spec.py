"""Parts that know themselves: each carries its name and options as plain data (its spec), and is built again from it.

    @named("client")
    def adagrad(learning_rate, epsilon=1e-7): …

    adagrad(0.1).spec                                   {"name": "adagrad", "learning_rate": 0.1, "epsilon": 1e-07}
    from_spec({"name": "adagrad", "learning_rate": 0.1}, "client") == adagrad(0.1)

In text, as on the command line, a spec may also be written as a call: "cosine(0.1, length=500)".

A part without options has its name alone as spec. A part that was made by hand, without a factory of this kind, has
the qualified name of its first function and is marked as not rebuildable.
"""

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar

import jax
import numpy as np

from fedtrue.names import look_up, suggestion

Spec = str | dict[str, Any]
P = TypeVar("P")

FACTORIES: dict[str, dict[str, Callable[..., Any]]] = {}  # kind → name → factory
COMMON_OPTIONS: dict[str, Callable[[Any], Any]] = {}  # kind → decorator of its factories, which adds options to all
DESCRIPTIONS: dict[str, dict[str, str]] = {}  # kind → option → what it is, for docstrings that do not say it
CONVERTERS: dict[str, Callable[[Any], Any]] = {}  # kind → how a value that is neither name nor spec becomes a part
KINDS_OF_OPTIONS: dict[str, str] = {}  # option → kind, for options that take a part and are not called like its kind
NOT_REBUILDABLE = {"rebuildable": False}
ROW = re.compile(r" {8}\S.*\n(?: {9,}.*\n)*")  # of `Args:`, with the lines that continue it


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Part:
    """Something with a spec. Two parts are equal when both can be built from the same spec."""

    spec: Any = field(init=False, default=None)  # init=False: `dataclasses.replace` makes another part, without a name

    def __post_init__(self) -> None:
        functions = (getattr(self, entry.name) for entry in fields(self))
        object.__setattr__(self, "spec", unnamed(next(filter(callable, functions), type(self))))

    @property
    def name(self) -> str:
        """The factory's name, or the qualified name of a part made by hand."""
        return part_name(self.spec)

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in part_options(self.spec).items())
        return f"{self.name}({options})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and is_rebuildable(self.spec) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash((type(self), repr(self.spec)))


def named(kind: str, defaults: bool = True) -> Callable[[Callable[..., P]], Callable[..., P]]:
    """A decorator for a factory of parts: it is registered under its own name, and its parts carry their spec.

    An argument that is called like a kind of part ("client", "trace"), or that `takes_parts` names, may be a part, a
    spec or a name.

    Args:
        kind: "method", "client", "server", "correction", "trace", "sampling", "weighting" or "schedule".
        defaults: whether the spec has every option, or only those that differ from their defaults.

    Returns:
        The decorator.

    >>> import fedtrue as ft
    >>> @named("method")
    ... def plain(client="sgd", server="sgd"):
    ...     return ft.fedopt(client, server, correction="none")
    >>> plain(ft.client.sgd(0.1)).spec["client"]
    {'name': 'sgd', 'learning_rate': 0.1}
    >>> del FACTORIES["method"]["plain"]
    """

    def decorate(factory: Callable[..., P]) -> Callable[..., P]:
        if kind in COMMON_OPTIONS:
            factory = COMMON_OPTIONS[kind](factory)
        signature = inspect.signature(factory)
        factory.__doc__ = with_rows(factory.__doc__, signature.parameters, DESCRIPTIONS.get(kind, {}))

        @wraps(factory)
        def build(*positional: Any, **options: Any) -> P:
            bound = _bound(factory.__name__, signature, positional, options)
            bound.apply_defaults()
            for key, value in bound.arguments.items():
                if value is not None and (part_kind := option_kind(key)):
                    bound.arguments[key] = _option_part(factory.__name__, key, value, part_kind)
            built = factory(*bound.args, **bound.kwargs)
            told = dict(bound.arguments)
            if not defaults:
                usual = {key: entry.default for key, entry in signature.parameters.items()}
                told = {key: value for key, value in told.items() if not _is_default(value, usual[key])}
            return with_spec(built, made_spec(factory.__name__, told))

        FACTORIES.setdefault(kind, {})[factory.__name__] = build
        return build

    return decorate


def _bound(
    name: str, signature: inspect.Signature, positional: tuple[Any, ...], options: Mapping[str, Any]
) -> inspect.BoundArguments:
    """The arguments of a call, or a TypeError that names the first one that is unknown or missing."""
    try:
        return signature.bind(*positional, **options)
    except TypeError as error:
        valid = list(signature.parameters)
        if unknown := [option for option in options if option not in valid]:
            near = suggestion(unknown[0], valid)
            problem = f"{name} has no {unknown[0]}{near}: it takes {', '.join(valid) or 'no options'}"
        elif missing := re.search(r"missing a required .*argument: '(\w+)'", str(error)):
            problem = f"{name} needs {missing[1]}: it takes {', '.join(valid)}"
        else:
            problem = f"{name}: {error}: it takes {', '.join(valid) or 'no options'}"
        raise TypeError(problem) from None


def accepts(kind: str, wanted: type[Part], example: str, **others: Callable[[Any], Part]) -> None:
    """Parts of this kind are instances of `wanted`, or of a type that `others` converts, by the type's name."""

    def convert(value: Any) -> Part:
        if isinstance(value, wanted):
            return value
        for base in type(value).__mro__:
            if base.__name__ in others:
                return others[base.__name__](value)
        names = ", ".join(FACTORIES[kind])
        raise ValueError(f"{kind} must be a part such as {example}, not {value!r}; or one of: {names}")

    CONVERTERS[kind] = convert


def takes_parts(kind: str, *options: str) -> None:
    """Options of these names take parts of this kind, or a value that is none: a number, a function."""
    KINDS_OF_OPTIONS.update(dict.fromkeys(options, kind))
    CONVERTERS[kind] = lambda value: value


def with_common_options(
    factory: Callable[..., Any], descriptions: Mapping[str, str], add: Callable[[Any, str, dict[str, Any]], Any]
) -> Callable[..., Any]:
    """A factory that takes these options too, by name; `add(part, name, options)` is the part that has them."""

    @wraps(factory)
    def build(*positional: Any, **options: Any) -> Any:
        common = {name: options.pop(name, None) for name in descriptions}
        return add(factory(*positional, **options), factory.__name__, common)

    signature = inspect.signature(factory)
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in descriptions]
    build.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    build.__doc__ = with_rows(factory.__doc__, build.__signature__.parameters, descriptions)  # type: ignore[attr-defined]
    return build


def with_rows(text: str | None, options: Iterable[str], descriptions: Mapping[str, str]) -> str:
    """A docstring whose `Args:` describe these options, in this order; what it says of an option itself stays."""
    above, returns, below = (text or "").partition("    Returns:")
    summary, heading, rows = above.partition("    Args:\n")
    if not returns:
        return summary + heading + rows
    own = {row.split(":")[0].strip(): row for row in re.findall(ROW, rows)}
    rows_of = {name: f"        {name}: {descriptions[name]}\n" for name in options if name in descriptions} | own
    ordered = "".join(rows_of[name] for name in dict.fromkeys([*options, *own]) if name in rows_of)
    return f"{summary}    Args:\n{ordered}\n{returns}{below}" if ordered else (text or "")


def option_kind(option: str) -> str | None:
    """The kind of part that an option takes; None: it takes none."""
    kind = KINDS_OF_OPTIONS.get(option, option)
    return kind if kind in FACTORIES else None


def _option_part(factory: str, option: str, value: Any, kind: str) -> Any:
    try:
        return from_spec(value, kind)
    except ValueError as error:
        if kind == option:
            raise
        raise ValueError(f"{factory}: {option}: {error}") from None


def _is_default(value: Any, default: Any) -> bool:
    """Whether an option has its default; the default of a part is given by name."""
    return value is default or (isinstance(value, Part) and value.spec == default)


def by_name(name: str) -> Any:
    """A default part of a factory that `named` decorates: built when the factory is called."""
    return name


def with_spec(part: P, spec: Spec) -> P:
    """`part`, which its maker has just built, with this spec."""
    object.__setattr__(part, "spec", spec)
    return part


def made_spec(name: str, options: Mapping[str, Any]) -> Spec:
    """The spec of a part by its name and options; an option that is None is left out."""
    told = {key: plain(value) for key, value in options.items() if value is not None}
    return {"name": name, **told} if options else name


def from_spec(spec: Any, kind: str = "method") -> Any:
    """The part that this spec describes.

    Args:
        spec: a name, a table of name and options, a call as text, or a part, which is returned as it is.
        kind: "method", "client", "server", "schedule", "correction", "trace", "sampling" or "weighting".

    Returns:
        The part, equal to the one whose spec it is.

    >>> import fedtrue as ft
    >>> method = ft.fedopt(ft.client.adam(0.01), correction="joint")
    >>> ft.from_spec(method.spec) == method
    True
    >>> ft.from_spec("cosine(0.1, length=500)", "schedule")
    cosine(initial=0.1, length=500, final=0.0)
    """
    spec = read_call(spec, kind)
    if not isinstance(spec, str | Mapping):
        return CONVERTERS[kind](spec)
    if not is_rebuildable(spec):
        raise ValueError(
            f"{kind} {part_name(spec)!r} was written in Python, no record can rebuild it: pass the part itself"
        )
    factory = look_up(kind, FACTORIES[kind], part_name(spec))
    options = part_options(spec)
    check_options(kind, part_name(spec), options)
    missing = [
        key for key, entry in option_table(factory).items() if entry.default is entry.empty and key not in options
    ]
    if missing:
        raise ValueError(f"{kind} {part_name(spec)!r} needs {missing[0]}: give a number, e.g. {missing[0]} = 0.1")
    return factory(**options)


def read_call(text: Any, kind: str) -> Any:
    """The spec that a text such as "cosine(0.1, length=500)" describes; anything else as it is."""
    if not isinstance(text, str) or "(" not in text:
        return text
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call):
        raise ValueError(f"{kind} {text!r} is not NAME(VALUE, OPTION=VALUE, …)")
    return _read_node(call, kind, text)


def _read_node(node: ast.expr, kind: str | None, text: str) -> Any:
    """A value in a call: a number, list, true, false, the name of a part, or another call."""
    if isinstance(node, ast.Name):
        return {"true": True, "false": False, "inf": math.inf}.get(node.id.lower(), node.id)
    if not isinstance(node, ast.Call):
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise ValueError(f"{ast.unparse(node)} in {text!r} is not a value: use numbers, lists and calls") from None
    if kind is None or not isinstance(node.func, ast.Name):
        raise ValueError(f"{ast.unparse(node)} in {text!r} is not a value: use numbers, lists and calls")
    name = node.func.id
    options = list(option_table(look_up(kind, FACTORIES[kind], name)))
    if len(node.args) > len(options):
        raise ValueError(f"{ast.unparse(node)} has too many values: {name} takes {', '.join(options) or 'no options'}")
    given = [*zip(options, node.args), *((entry.arg or "**", entry.value) for entry in node.keywords)]
    for option, _ in given:
        if [key for key, _ in given].count(option) > 1:
            raise ValueError(f"{ast.unparse(node)} gives {option} twice: give it once")
    return {"name": name, **{key: _read_node(value, option_kind(key), text) for key, value in given}}


def check_options(kind: str, name: str, options: Mapping[str, Any]) -> None:
    """Refuses an option that the factory of this name does not take."""
    check_option_names(name, look_up(kind, FACTORIES[kind], name), options)


def check_option_names(
    name: str, factory: Callable[..., Any], options: Mapping[str, Any], skip: tuple[str, ...] = ()
) -> None:
    """Refuses an option that a factory does not take; arguments in `skip` are no options."""
    valid = [option for option in option_table(factory) if option not in skip]
    for option in options:
        if option not in valid:
            near = "" if option in FACTORIES else suggestion(option, valid)  # the name of a kind is no misspelling
            raise ValueError(f"{name} has no {option}{near}: it takes {', '.join(valid) or 'no options'}")


def option_table(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options that a factory takes, by name."""
    return dict(inspect.signature(factory).parameters)


def part_name(spec: Any) -> str:
    """'adam' of "adam" and of {"name": "adam", …}."""
    return spec if isinstance(spec, str) else spec["name"]


def part_options(spec: Any) -> dict[str, Any]:
    """A spec without its name."""
    return {} if isinstance(spec, str) else {key: value for key, value in spec.items() if key != "name"}


def is_rebuildable(spec: Any) -> bool:
    """Whether nothing in the spec was made by hand."""
    if isinstance(spec, Mapping):
        return spec.get("rebuildable", True) and all(map(is_rebuildable, spec.values()))
    return True


def unnamed(function: Any) -> Spec:
    """The spec of what only a Python program can build: its qualified name, marked."""
    qualified = getattr(function, "__qualname__", type(function).__qualname__).split(".<locals>")[0]
    return {"name": f"{getattr(function, '__module__', '')}.{qualified}", **NOT_REBUILDABLE}


def plain(value: Any) -> Any:
    """An option as plain data: numbers, strings, lists and tables. Traced numbers stay themselves."""
    if isinstance(value, Part):
        return value.spec
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, jax.core.Tracer) or value is None or isinstance(value, str | bool | int | float):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    if isinstance(value, type | np.dtype) or hasattr(value, "dtype"):
        return np.dtype(value).name  # a precision
    return getattr(value, "spec", None) or unnamed(value)
