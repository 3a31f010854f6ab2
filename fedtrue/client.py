"""`ft.client.*`: the client optimizers."""

from fedtrue.algorithm.adam_family import adabelief, adam, amsgrad, yogi
from fedtrue.algorithm.client_optimizer import adagrad, momentum, preconditioned, rmsprop, sgd
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
