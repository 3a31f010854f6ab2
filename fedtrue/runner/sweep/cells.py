"""Sweep files: the settings of a run, and how they vary from cell to cell.

    task = "shakespeare"
    rounds = 300

    [sweep.product]                             # every combination
    client.learning_rate = [0.1, 0.3, 1.0]
    seed = [0, 1]

    [sweep.zip]                                 # the first values together, the second values together …
    correction = ["none", "joint"]
    server.learning_rate = [0.3, 1.0]

    [sweep.random]                              # random samples
    samples = 20
    client.epsilon = { log_uniform = [1e-8, 1e-3] }

    [[sweep.cells]]                             # or one by one
    label = "client SGD"
    client = { name = "sgd", learning_rate = 1.0 }

All combinations of these are trained: 6 × 2 × 20 × 1 cells here.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.names import look_up, suggestion
from fedtrue.runner import toml
from fedtrue.runner.setting_types import check_table
from fedtrue.runner.settings import RunConfig, check_names, from_table, set_one

SWEEP_TABLES = ("product", "zip", "random", "cells")
NOT_IN_NAMES = ("label", "reference")  # of cells
PARTS = ("client", "server", "correction", "method")  # not in the names of cells with a label either
MAX_NAME_LENGTH = 80
EXAMPLE = "[sweep.product] seed = [0, 1]"

Settings = dict[str, Any]  # dotted key → value


class Cell(NamedTuple):
    """One run of a sweep."""

    name: str  # of its folder
    config: RunConfig


def read_sweep(path: Path) -> list[Cell]:
    """The cells of a sweep's TOML file, with all names checked."""
    table = toml.read(path, "a sweep's TOML file")
    sweep_tables = table.pop("sweep", None)
    if not sweep_tables:
        raise ValueError(f"{path} varies nothing: add a [sweep.product] table, or use `fedtrue run`")
    base, where = from_table(table, str(path)), str(path)
    varied = list(_combined(check_table(where, "sweep", sweep_tables, EXAMPLE), where))
    configs = [_applied(base, settings, where) for settings in varied]  # refuses wrong values, which have no names
    cells = [Cell(_name(index, settings), config) for index, (settings, config) in enumerate(zip(varied, configs))]
    for cell in cells:
        check_names(cell.config)
    return cells


def _combined(tables: Mapping[str, Any], where: str) -> Iterator[Settings]:
    """All combinations of what the tables give."""
    for name in tables:
        if name not in SWEEP_TABLES:
            hint = suggestion(name, SWEEP_TABLES)
            raise ValueError(f"{where}: sweep.{name} is not a way to vary{hint}; there are: {', '.join(SWEEP_TABLES)}")
    table_of = lambda name: _dotted(check_table(where, f"sweep.{name}", tables.get(name, {}), EXAMPLE))
    product, zipped, drawn = map(table_of, ("product", "zip", "random"))
    choices = [
        _listed(tables.get("cells", [{}]), where),
        _zipped(zipped, where),
        _draws(drawn, where),
        [dict(zip(product, values)) for values in itertools.product(*map(_list_checker(where), product.items()))],
    ]
    for parts in itertools.product(*choices):
        yield {key: value for part in parts for key, value in part.items()}


def _listed(cells: Any, where: str) -> list[Settings]:
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ValueError(f"{where}: sweep.cells takes tables, e.g. [[sweep.cells]] client_rate = 0.1, not {cells!r}")
    return cells


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Settings:
    """Nested tables as dotted keys; the table of a distribution is kept."""
    flat: Settings = {}
    for key, value in table.items():
        if isinstance(value, dict) and not set(value) <= set(DISTRIBUTIONS):
            flat.update(_dotted(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _list_checker(where: str) -> Callable[[tuple[str, Any]], list[Any]]:
    def checked(entry: tuple[str, Any]) -> list[Any]:
        key, values = entry
        if not isinstance(values, list) or not values:
            raise ValueError(f"{where}: {key} varies over a list, e.g. {key} = [0.1, 1.0], not {values!r}")
        return values

    return checked


def _zipped(zipped: Settings, where: str) -> list[Settings]:
    lists = dict(zip(zipped, map(_list_checker(where), zipped.items())))
    lengths = {len(values) for values in lists.values()}
    if len(lengths) > 1:
        raise ValueError(f"{where}: the lists of sweep.zip differ in length: {', '.join(map(str, sorted(lengths)))}")
    return [dict(zip(lists, values)) for values in zip(*lists.values())] if lists else [{}]


DISTRIBUTIONS = {
    "uniform": lambda generator, low, high: generator.uniform(low, high),
    "log_uniform": lambda generator, low, high: math.exp(generator.uniform(math.log(low), math.log(high))),
}
LOWEST = {"uniform": -math.inf, "log_uniform": 0.0}  # bounds are above these


def _draws(drawn: Settings, where: str) -> list[Settings]:
    """`samples` draws of every key, from a list or a distribution; they depend only on `draw_seed`."""
    if not drawn:
        return [{}]
    samples = check_int(f"{where}: sweep.random.samples", drawn.pop("samples", None), low=1)
    generator = np.random.default_rng(check_int(f"{where}: sweep.random.draw_seed", drawn.pop("draw_seed", 0)))
    return [{key: _draw(generator, key, source, where) for key, source in drawn.items()} for _ in range(samples)]


def _draw(generator: np.random.Generator, key: str, source: Any, where: str) -> Any:
    if isinstance(source, list) and source:
        return source[int(generator.integers(len(source)))]
    if not isinstance(source, dict) or len(source) != 1:
        raise ValueError(f"{where}: {key} is drawn from a list or {{ log_uniform = [low, high] }}, not {source!r}")
    ((name, bounds),) = source.items()
    draw = look_up("distribution", DISTRIBUTIONS, name)
    if not _are_bounds(bounds, LOWEST[name]):
        positive = " above 0" if LOWEST[name] == 0 else ""
        example = f"{key} = {{ {name} = [0.001, 0.1] }}"
        raise ValueError(
            f"{where}: {key}: {name} takes two numbers{positive}, the lower first: {example}, not {bounds!r}"
        )
    return float(draw(generator, *bounds))


def _are_bounds(bounds: Any, above: float) -> bool:
    """Whether these are two finite numbers, the lower first."""
    if not isinstance(bounds, list) or [type(bound) in (int, float) for bound in bounds] != [True, True]:
        return False
    return above < bounds[0] <= bounds[1] < math.inf


def _applied(base: RunConfig, settings: Settings, where: str) -> RunConfig:
    config = base
    for key, value in settings.items():
        config = set_one(config, key, value, where)
    return config


def _name(index: int, settings: Settings) -> str:
    """The name of the cell's folder: its number, its label or the names of its parts, and the numbers it varies."""
    names = [settings["label"]] if "label" in settings else [v["name"] for v in settings.values() if _is_part(v)]
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict | list)}
    hidden = (*NOT_IN_NAMES, *PARTS) if "label" in settings else NOT_IN_NAMES
    varied = [f"{key.removesuffix('.learning_rate')}={_short(v)}" for key, v in plain.items() if key not in hidden]
    return re.sub(r"[^\w.=+-]+", "-", "-".join([f"{index:03d}", *names, *varied])).strip("-")[:MAX_NAME_LENGTH]


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
