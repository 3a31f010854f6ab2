"""The grid of a sweep: which cells can share a compiled program, and the numbers in which they differ.

Cells share a program if they differ only in their labels, the numbers of their methods (rates, ε, μ …) and, for
`fedopt` with clients that keep no state, the choice of parts. A client optimizer whose preconditioner is a matrix
shares with cells of the same optimizer only. Numbers that are equal in all cells are constants of the program. Those of
a sampling always are: they decide how many clients take part. So are those of the parts on the way up (compression,
aggregator, privacy, attack), which decide sizes of messages and what is recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedtrue.algorithm import choice
from fedtrue.algorithm.method import Method
from fedtrue.algorithm.upload import DESCRIPTIONS
from fedtrue.runner.settings import DEFAULT_METHOD, RunConfig
from fedtrue.spec import from_spec, part_options

NOT_IN_PROGRAM = ("method", "label", "reference")
SELECTABLE_PARTS = ("client", "server", "correction")  # cells of one program may have different ones

CONSTANT_PARTS = ("sampling", *DESCRIPTIONS)  # with all their numbers

Path = tuple[str, ...]  # of a number in a spec: ("client", "learning_rate")


def program_of(config: RunConfig) -> tuple[Any, ...]:
    """A key that is equal for cells that can share a program; `config` is resolved."""
    settings = tuple(
        _hashable(getattr(config, entry.name)) for entry in fields(config) if entry.name not in NOT_IN_PROGRAM
    )
    method = dict(config.method)
    if _has_selectable_parts(method):
        selectable = [kind for kind in SELECTABLE_PARTS if kind != "client" or _is_diagonal(method["client"])]
        method = {key: value for key, value in method.items() if key not in selectable}
    return (*settings, structure(method))


def _has_selectable_parts(method: Mapping[str, Any]) -> bool:
    """Only without client memory: its structure depends on the client optimizer, the trace and the correction.

    On the way up a contribution is compressed or clipped in its own shape, which a choice of parts would change.
    """
    if method["name"] != DEFAULT_METHOD or any(
        name in method for name in DESCRIPTIONS
    ):  # others may have no correction
        return False
    return method["client_state"] == "restart" and not part_options(method["correction"]).get("table", False)


def _is_diagonal(client: Any) -> bool:
    """Maps of one kind can be selected from; matrices and diagonals are trees of different structure."""
    return from_spec(client, "client").diagonal


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(entry)) for key, entry in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def numbers(spec: Any, path: Path = ()) -> dict[Path, float]:
    """The numbers of a spec, by path: these can differ within one program."""
    if isinstance(spec, Mapping):
        varying = [(key, entry) for key, entry in spec.items() if key not in CONSTANT_PARTS]
        return {place: value for key, entry in varying for place, value in numbers(entry, (*path, key)).items()}
    is_number = isinstance(spec, int | float) and not isinstance(spec, bool)
    return {path: spec} if is_number else {}


def structure(spec: Any) -> Any:
    """A hashable form of a spec without its numbers."""
    return _hashable(with_numbers(spec, dict.fromkeys(numbers(spec), "a number")))


def with_numbers(spec: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    """The spec with some of its numbers replaced."""
    if isinstance(spec, Mapping):
        return {key: with_numbers(entry, values, (*path, key)) for key, entry in spec.items()}
    return values.get(path, spec)


class Grid(NamedTuple):
    """The values of the cells, one row per cell, and the method as a function of a row."""

    values: Any
    method_of: Callable[[Any], Method]
    server: list[int | None]  # index of each cell's server optimizer; None if all have the same


def grid_of(configs: Sequence[RunConfig]) -> Grid:
    """The grid of resolved configs that share a program."""
    specs = [config.method for config in configs]
    first = specs[0]
    if not _has_selectable_parts(first):
        only = _options(specs)
        return Grid(only.values, lambda cell: from_spec(only.specs_of(cell)[0]), [None] * len(configs))
    parts = {kind: _options([spec[kind] for spec in specs]) for kind in SELECTABLE_PARTS}

    def method_of(cell: Any) -> Method:
        chosen = {}
        for kind, options in parts.items():
            built = [from_spec(spec, kind) for spec in options.specs_of(cell[kind])]
            chosen[kind] = CHOICES[kind](cell[kind]["which"], built)
        return from_spec({**first, **chosen})

    several_servers = len(parts["server"].specs) > 1
    server_indices = parts["server"].values["which"]
    return Grid(
        {kind: options.values for kind, options in parts.items()},
        method_of,
        [int(index) if several_servers else None for index in server_indices],
    )


CHOICES: dict[str, Callable[..., Any]] = {
    "client": choice.client_optimizer,
    "server": choice.server_optimizer,
    "correction": choice.correction,
}


class Options(NamedTuple):
    """The distinct specs among the cells, the index of each cell's spec, and its numbers."""

    specs: list[Any]
    paths: list[list[Path]]  # of the numbers that vary, per spec
    values: Any  # {"which": …, "numbers": [one list of columns per spec]}

    def specs_of(self, cell: Any) -> list[Any]:
        """All distinct specs, with the numbers of this cell."""
        entries = zip(self.specs, self.paths, cell["numbers"])
        return [with_numbers(spec, dict(zip(paths, values))) for spec, paths, values in entries]


def _options(specs: Sequence[Any]) -> Options:
    distinct = list({structure(spec): spec for spec in specs}.values())
    indices = [[structure(spec) for spec in distinct].index(structure(cell_spec)) for cell_spec in specs]
    paths, columns = [], []
    for index, spec in enumerate(distinct):
        rows = [numbers(cell_spec if indices[cell] == index else spec) for cell, cell_spec in enumerate(specs)]
        varying = [path for path in numbers(spec) if len({row[path] for row in rows}) > 1]
        paths.append(varying)
        columns.append([jnp.asarray([row[path] for row in rows], float) for path in varying])
    return Options(distinct, paths, {"which": jnp.asarray(indices), "numbers": columns})
