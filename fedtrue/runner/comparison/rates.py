"""Where the learning rates of a method are in its spec, and the grid that a budget of trials buys.

A grid is logarithmic around a centre: the default that the method or its server documents, else CLIENT_CENTRES or
SERVER_CENTRES. Of an even number of rates one more is below the centre, as a rate that is too large diverges.
"""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from fedtrue.algorithm.methods import METHODS
from fedtrue.names import look_up
from fedtrue.runner.settings import RATES
from fedtrue.spec import FACTORIES, option_table, part_name, part_options

CLIENT_CENTRES = {  # of clients that step by the gradient, and by the gradient divided by its size
    "sgd": 0.1,
    "momentum": 0.1,
    "adagrad": 0.1,
    "rmsprop": 0.003,
    "adam": 0.003,
    "yogi": 0.003,
    "amsgrad": 0.003,
    "adabelief": 0.003,
    "muon": 0.01,
    "shampoo": 0.1,
}
SERVER_CENTRES = {"sgd": 1.0, "momentum": 1.0, "adagrad": 0.1, "adam": 0.1, "yogi": 0.1}
OWN_CLIENTS = {"adaalter": "adagrad", "fedlada": "amsgrad", "fedadamw": "adam", "sync_momentum": "momentum"}
MAX_SPACING, MAX_SPAN = 0.5, 3.0  # decades: between two rates, and between the first and the last
MAX_ASPECT = 3  # times as many client rates as server rates


class Rate(NamedTuple):
    """A learning rate of a method."""

    path: tuple[str, ...]  # in its spec: ("client_rate",) or ("client", "learning_rate")
    centre: float


def rates_of(spec: Mapping[str, Any]) -> dict[str, Rate]:
    """{"client": its rate, "server": its rate} of a method's spec, as far as it has them and does not give them."""
    takes = option_table(look_up("method", METHODS, part_name(spec)))
    found: dict[str, Rate] = {}
    for short, kind in RATES.items():
        if short in takes and short not in spec:
            own_default = takes[short].default
            centre = _client_centre(part_name(spec)) if own_default is takes[short].empty else own_default
            found[kind] = Rate((short,), float(centre))
        elif kind in takes and "learning_rate" not in part_options(part := spec.get(kind, takes[kind].default)):
            centres = CLIENT_CENTRES if kind == "client" else SERVER_CENTRES
            look_up(kind, FACTORIES[kind], part_name(part))
            if part_name(part) not in centres:
                raise ValueError(f"{kind} {part_name(part)!r} has no known rates: give one, e.g. learning_rate=0.1")
            found[kind] = Rate((kind, "learning_rate"), centres[part_name(part)])
    return found


def _client_centre(method: str) -> float:
    return CLIENT_CENTRES[OWN_CLIENTS.get(method, "sgd")]


def with_rates(spec: Mapping[str, Any], values: Mapping[str, float]) -> dict[str, Any]:
    """The spec with the learning rates {"client": …, "server": …} in their places."""
    takes, changed = option_table(look_up("method", METHODS, part_name(spec))), dict(spec)
    for kind, rate in rates_of(spec).items():
        if len(rate.path) == 1:
            changed[rate.path[0]] = values[kind]
        else:
            part = spec.get(kind, takes[kind].default)
            changed[kind] = {"name": part_name(part), **part_options(part), "learning_rate": values[kind]}
    return changed


def rate_grid(centre: float, count: int) -> list[float]:
    """`count` rates, half a decade apart or, if there are many, so that they span three decades.

    >>> rate_grid(1.0, 4)
    [0.1, 0.3162, 1.0, 3.162]
    """
    spacing = min(MAX_SPACING, MAX_SPAN / max(count - 1, 1))
    return [_rounded(centre * 10 ** (spacing * (place - count // 2))) for place in range(count)]


def _rounded(rate: float) -> float:
    """Four digits, so that files and tables show the rate that was trained."""
    return float(f"{rate:.4g}")


def grid_shape(budget: int) -> tuple[int, int]:
    """(client rates, server rates) with the largest product within the budget, nearly as many of both.

    >>> grid_shape(24), grid_shape(8), grid_shape(1)
    ((6, 4), (4, 2), (1, 1))
    """
    shapes = [(most, least) for least in range(1, math.isqrt(budget) + 1) for most in range(least, budget // least + 1)]
    balanced = [(most, least) for most, least in shapes if most <= MAX_ASPECT * least]
    return max(balanced, key=lambda shape: (shape[0] * shape[1], shape[1]))


def trials_of(spec: Mapping[str, Any], budget: int) -> list[dict[str, float]]:
    """The learning rates to try, {"client": …, "server": …}: at most `budget` of them, [{}] if all are given."""
    rates = rates_of(spec)
    counts = grid_shape(budget) if len(rates) == 2 else (budget,)
    grids = [rate_grid(rate.centre, count) for rate, count in zip(rates.values(), counts)]
    return [dict(zip(rates, values)) for values in product(*grids)]


def at_edge(spec: Mapping[str, Any], chosen: Mapping[str, float], budget: int) -> list[str]:
    """Which of the chosen rates are the lowest or highest that was tried: a better one may lie outside."""
    tried = trials_of(spec, budget)
    values = {kind: sorted({trial[kind] for trial in tried}) for kind in chosen}
    is_end = lambda kind, rate: len(values[kind]) > 1 and rate in (values[kind][0], values[kind][-1])
    return [kind for kind, rate in chosen.items() if is_end(kind, rate)]


def any_rates(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with the centres of its grids, for a look at the method's shapes."""
    return with_rates(spec, {kind: rate.centre for kind, rate in rates_of(spec).items()})
