"""Settings of many runs as one grid: which cells can share a program, and the numbers in which they differ.

Cells share a program when all is the same but their labels, the numbers of their parts (rates, ε, β …) and, where
clients keep no state, the choice of parts. Numbers that are the same in all cells stay constants of the program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedtrue.algorithm import choice
from fedtrue.algorithm.client_optimizer import CLIENT_OPTIMIZERS
from fedtrue.algorithm.correction import CORRECTIONS
from fedtrue.algorithm.method import Method, fedopt
from fedtrue.algorithm.methods import METHODS
from fedtrue.algorithm.server_optimizer import SERVER_OPTIMIZERS
from fedtrue.runner.config import Part, RunConfig

PARTS: dict[str, Mapping[str, Callable[..., Any]]] = {"client": CLIENT_OPTIMIZERS, "server": SERVER_OPTIMIZERS}
NOT_SHAPE = ("client", "server", "correction", "label", "paper")


def program_of(config: RunConfig) -> tuple[Any, ...]:
    """Equal for cells that can share a program; `config` is resolved."""
    rest = tuple(_hashable(getattr(config, entry.name)) for entry in fields(config) if entry.name not in NOT_SHAPE)
    if config.method is not None:
        return (*rest, *(tuple(sorted(part.options)) for part in (config.client, config.server)))
    if config.client_state != "restart":  # what clients keep belongs to one optimizer, and may follow from a trace
        return (*rest, config.correction, structure(config.client), structure(config.server))
    return rest


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(entry)) for key, entry in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def numbers(part: Part) -> dict[str, float]:
    """The options that can differ inside one program."""
    return {key: value for key, value in part.options.items() if _is_number(value)}


def structure(part: Part) -> tuple[Any, ...]:
    """All else about a part."""
    rest = {key: value for key, value in part.options.items() if not _is_number(value)}
    return part.name, _hashable(rest), tuple(sorted(numbers(part)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Grid(NamedTuple):
    """The cells' values, one row a cell, and the method that one row stands for."""

    values: Any
    method_of: Callable[[Any], Method]
    server: list[int | None]  # which of the server optimizers a cell has; None if there is only one


def grid_of(configs: Sequence[RunConfig]) -> Grid:
    """For resolved configs that share a program."""
    first = configs[0]
    around: dict[str, Any] = {
        "trace": first.trace,
        "client_state": first.client_state,
        "sampling": first.sampling,
        "weighting": first.weighting,
    }
    if first.method is not None:
        rates = {f"{name}_rate": [_rate(getattr(config, name)) for config in configs] for name in PARTS}
        given = {name: jnp.asarray(values, float) for name, values in rates.items() if None not in values}
        return Grid(given, lambda cell: METHODS[first.method or ""](**cell, **around), [None] * len(configs))
    parts = {name: _options([getattr(config, name) for config in configs]) for name in PARTS}
    corrections = list(dict.fromkeys(config.correction for config in configs))
    which = jnp.asarray([corrections.index(config.correction) for config in configs])
    values = {"correction": which, **{name: options.values for name, options in parts.items()}}

    def method_of(cell: Any) -> Method:
        built = {name: options.build(PARTS[name], cell[name]) for name, options in parts.items()}
        return fedopt(
            choice.client_optimizer(cell["client"]["which"], built["client"]),
            choice.server_optimizer(cell["server"]["which"], built["server"]),
            choice.correction(cell["correction"], [CORRECTIONS[name]() for name in corrections]),
            **around,
        )

    several = len(parts["server"].parts) > 1
    return Grid(values, method_of, [int(w) if several else None for w in parts["server"].values["which"]])


def _rate(part: Part) -> float | None:
    return part.options.get("learning_rate")


class Options(NamedTuple):
    """The different parts among the cells, and which one each cell has, with its numbers."""

    parts: list[Part]
    values: Any

    def build(self, table: Mapping[str, Callable[..., Any]], cell: Any) -> list[Any]:
        """Each of them, with this cell's numbers in its own."""
        options = zip(self.parts, cell["numbers"])
        return [table[part.name](**{**part.options, **values}) for part, values in options]


def _options(parts: Sequence[Part]) -> Options:
    different = list({structure(part): part for part in parts}.values())
    place = [[structure(part) for part in different].index(structure(own)) for own in parts]
    rows = [
        [numbers(own if place[c] == i else part) for c, own in enumerate(parts)] for i, part in enumerate(different)
    ]
    varying = [{key: [row[key] for row in of_part] for key in of_part[0]} for of_part in rows]
    columns = [{key: jnp.asarray(v, float) for key, v in of_part.items() if len(set(v)) > 1} for of_part in varying]
    return Options(different, {"which": jnp.asarray(place), "numbers": columns})
