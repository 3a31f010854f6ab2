"""Settings of many runs as one grid: which cells can share a program, and the numbers in which they differ.

Cells share a program when all is the same but their labels, the numbers of their methods (rates, ε, μ …) and, for
`fedopt` with clients that keep no state, the choice of parts. Numbers that are the same in all cells stay constants of
the program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedtrue.algorithm import choice
from fedtrue.algorithm.method import Method
from fedtrue.runner.settings import DEFAULT_METHOD, RunConfig
from fedtrue.spec import from_spec

NOT_SHAPE = ("method", "label", "reference")
CHOSEN = ("client", "server", "correction")  # parts of which each cell of one program may have another

Path = tuple[str, ...]  # of a number in a spec: ("client", "learning_rate")


def program_of(config: RunConfig) -> tuple[Any, ...]:
    """Equal for cells that can share a program; `config` is resolved."""
    rest = tuple(_hashable(getattr(config, entry.name)) for entry in fields(config) if entry.name not in NOT_SHAPE)
    method = dict(config.method)
    if _can_choose(method):
        method = {key: value for key, value in method.items() if key not in CHOSEN}
    return (*rest, structure(method))


def _can_choose(method: Mapping[str, Any]) -> bool:
    """What clients keep belongs to one optimizer, and may follow from a trace."""
    return method["name"] == DEFAULT_METHOD and method["client_state"] == "restart"


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(entry)) for key, entry in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def numbers(spec: Any, path: Path = ()) -> dict[Path, float]:
    """The numbers of a spec, by their path: what can differ inside one program."""
    if isinstance(spec, Mapping):
        return {place: value for key, entry in spec.items() for place, value in numbers(entry, (*path, key)).items()}
    is_number = isinstance(spec, int | float) and not isinstance(spec, bool)
    return {path: spec} if is_number else {}


def structure(spec: Any) -> Any:
    """All else about a spec."""
    return _hashable(with_numbers(spec, dict.fromkeys(numbers(spec), "a number")))


def with_numbers(spec: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    """The spec with some of its numbers replaced."""
    if isinstance(spec, Mapping):
        return {key: with_numbers(entry, values, (*path, key)) for key, entry in spec.items()}
    return values.get(path, spec)


class Grid(NamedTuple):
    """The cells' values, one row per cell, and the method that one row stands for."""

    values: Any
    method_of: Callable[[Any], Method]
    server: list[int | None]  # which of the server optimizers a cell has; None if there is only one


def grid_of(configs: Sequence[RunConfig]) -> Grid:
    """For resolved configs that share a program."""
    specs = [config.method for config in configs]
    first = specs[0]
    if not _can_choose(first):
        only = _options(specs)
        return Grid(only.values, lambda cell: from_spec(only.specs_of(cell)[0]), [None] * len(configs))
    parts = {kind: _options([spec[kind] for spec in specs]) for kind in CHOSEN}

    def method_of(cell: Any) -> Method:
        chosen = {}
        for kind, options in parts.items():
            built = [from_spec(spec, kind) for spec in options.specs_of(cell[kind])]
            chosen[kind] = CHOICES[kind](cell[kind]["which"], built)
        return from_spec({**first, **chosen})

    several = len(parts["server"].specs) > 1
    places = parts["server"].values["which"]
    return Grid(
        {kind: options.values for kind, options in parts.items()},
        method_of,
        [int(which) if several else None for which in places],
    )


CHOICES: dict[str, Callable[..., Any]] = {
    "client": choice.client_optimizer,
    "server": choice.server_optimizer,
    "correction": choice.correction,
}


class Options(NamedTuple):
    """The different specs among the cells, and which one each cell has, with its numbers."""

    specs: list[Any]
    paths: list[list[Path]]  # of the numbers that vary, per spec
    values: Any  # {"which": …, "numbers": [one list of columns per spec]}

    def specs_of(self, cell: Any) -> list[Any]:
        """Each of them, with this cell's numbers in its own."""
        entries = zip(self.specs, self.paths, cell["numbers"])
        return [with_numbers(spec, dict(zip(paths, values))) for spec, paths, values in entries]


def _options(specs: Sequence[Any]) -> Options:
    different = list({structure(spec): spec for spec in specs}.values())
    places = [[structure(spec) for spec in different].index(structure(own)) for own in specs]
    paths, columns = [], []
    for place, spec in enumerate(different):
        rows = [numbers(own if places[c] == place else spec) for c, own in enumerate(specs)]
        varying = [path for path in numbers(spec) if len({row[path] for row in rows}) > 1]
        paths.append(varying)
        columns.append([jnp.asarray([row[path] for row in rows], float) for path in varying])
    return Options(different, paths, {"which": jnp.asarray(places), "numbers": columns})
