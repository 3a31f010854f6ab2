"""`ft.methods.*`: the named methods."""

from fedtrue.algorithm.methods import (
    METHODS,
    fedadagrad,
    fedadam,
    fedavg,
    fedavgm,
    fedopt,
    fedprox,
    fedyogi,
    mimelite,
    scaffold,
)

__all__ = [
    "METHODS",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedopt",
    "fedprox",
    "fedyogi",
    "mimelite",
    "scaffold",
]
