"""`ft.client.*`: the client optimizers."""

from fedtrue.algorithm.client_optimizer import (
    adabelief,
    adagrad,
    adam,
    amsgrad,
    momentum,
    preconditioned,
    rmsprop,
    sgd,
    yogi,
)
from fedtrue.algorithm.matrix_optimizer import muon, shampoo

__all__ = [
    "adabelief",
    "adagrad",
    "adam",
    "amsgrad",
    "momentum",
    "muon",
    "preconditioned",
    "rmsprop",
    "sgd",
    "shampoo",
    "yogi",
]
