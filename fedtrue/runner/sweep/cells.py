"""A sweep as a file: a run's settings, and how they vary from cell to cell.

    task = "shakespeare"
    rounds = 300

    [sweep.product]                             # every combination
    client.learning_rate = [0.1, 0.3, 1.0]
    seed = [0, 1]

    [sweep.zip]                                 # the first with the first, the second with the second …
    correction = ["none", "joint"]
    server.learning_rate = [0.3, 1.0]

    [sweep.random]                              # so many draws
    samples = 20
    client.epsilon = { log_uniform = [1e-8, 1e-3] }

    [[sweep.cells]]                             # or one by one
    label = "client SGD"
    client = { name = "sgd", learning_rate = 1.0 }

What is given is multiplied: 6 × 2 × 20 × 1 cells here.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtrue.algorithm.checks import check_int
from fedtrue.names import look_up, suggestion
from fedtrue.runner import toml
from fedtrue.runner.settings import RunConfig, check_names, from_table, set_one

WAYS = ("product", "zip", "random", "cells")
UNSEEN = ("label", "reference")  # in the names of cells
PARTS = ("client", "server", "correction", "method")  # unseen too where a label names them
NAME_LENGTH = 80

Settings = dict[str, Any]  # dotted key → value


class Cell(NamedTuple):
    """One run of a sweep, and the folder's name it gets."""

    name: str
    config: RunConfig


def read_sweep(path: Path) -> list[Cell]:
    """The cells of a sweep's TOML file, all names checked."""
    table = toml.read(path, "a sweep's TOML file")
    ways = table.pop("sweep", None)
    if not ways:
        raise ValueError(f"{path} varies nothing: add a [sweep.product] table, or use `fedtrue run`")
    base = from_table(table, str(path))
    varied = list(_combined(ways, str(path)))
    cells = [Cell(_name(place, settings), _applied(base, settings, str(path))) for place, settings in enumerate(varied)]
    for cell in cells:
        check_names(cell.config)
    return cells


def _combined(ways: Mapping[str, Any], where: str) -> Iterator[Settings]:
    """The product of the ways that are given."""
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"{where}: sweep.{way} is not a way to vary{suggestion(way, WAYS)}; there are: {WAYS}")
    product, zipped, drawn = (_dotted(ways.get(way, {})) for way in ("product", "zip", "random"))
    choices = [
        ways.get("cells", [{}]),
        _side_by_side(zipped, where),
        _draws(drawn, where),
        [dict(zip(product, values)) for values in itertools.product(*map(_list(where), product.items()))],
    ]
    for parts in itertools.product(*choices):
        yield {key: value for part in parts for key, value in part.items()}


def _dotted(table: Mapping[str, Any], above: str = "") -> Settings:
    """Nested tables as dotted keys; a table that says how to draw stays one."""
    flat: Settings = {}
    for key, value in table.items():
        if isinstance(value, dict) and not set(value) <= set(DISTRIBUTIONS):
            flat.update(_dotted(value, f"{above}{key}."))
        else:
            flat[above + key] = value
    return flat


def _list(where: str) -> Any:
    def checked(entry: tuple[str, Any]) -> list[Any]:
        key, values = entry
        if not isinstance(values, list) or not values:
            raise ValueError(f"{where}: {key} varies over a list, e.g. {key} = [0.1, 1.0], not {values!r}")
        return values

    return checked


def _side_by_side(zipped: Settings, where: str) -> list[Settings]:
    lists = dict(zip(zipped, map(_list(where), zipped.items())))
    lengths = {len(values) for values in lists.values()}
    if len(lengths) > 1:
        raise ValueError(f"{where}: the lists of sweep.zip differ in length: {', '.join(map(str, sorted(lengths)))}")
    return [dict(zip(lists, values)) for values in zip(*lists.values())] if lists else [{}]


DISTRIBUTIONS = {
    "uniform": lambda generator, low, high: generator.uniform(low, high),
    "log_uniform": lambda generator, low, high: math.exp(generator.uniform(math.log(low), math.log(high))),
}


def _draws(drawn: Settings, where: str) -> list[Settings]:
    """`samples` draws of every key, each from a list or a distribution; `draw_seed` makes them the same every time."""
    if not drawn:
        return [{}]
    samples = check_int(f"{where}: sweep.random.samples", drawn.pop("samples", None), low=1)
    generator = np.random.default_rng(drawn.pop("draw_seed", 0))
    return [{key: _draw(generator, key, how, where) for key, how in drawn.items()} for _ in range(samples)]


def _draw(generator: np.random.Generator, key: str, how: Any, where: str) -> Any:
    if isinstance(how, list) and how:
        return how[int(generator.integers(len(how)))]
    if not isinstance(how, dict) or len(how) != 1:
        raise ValueError(f"{where}: {key} is drawn from a list or {{ log_uniform = [low, high] }}, not {how!r}")
    ((name, bounds),) = how.items()
    return float(look_up("distribution", DISTRIBUTIONS, name)(generator, *bounds))


def _applied(base: RunConfig, settings: Settings, where: str) -> RunConfig:
    config = base
    for key, value in settings.items():
        config = set_one(config, key, value, where)
    return config


def _name(place: int, settings: Settings) -> str:
    """Where the cell's folder is: its number, then its label or its parts' names, then the plain settings it varies."""
    called = [settings["label"]] if "label" in settings else [v["name"] for v in settings.values() if _is_part(v)]
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict | list)}
    unseen = (*UNSEEN, *PARTS) if "label" in settings else UNSEEN
    varied = [f"{key.removesuffix('.learning_rate')}={_short(v)}" for key, v in plain.items() if key not in unseen]
    return re.sub(r"[^\w.=+-]+", "-", "-".join([f"{place:03d}", *called, *varied])).strip("-")[:NAME_LENGTH]


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
