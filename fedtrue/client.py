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

__all__ = ["adabelief", "adagrad", "adam", "amsgrad", "momentum", "preconditioned", "rmsprop", "sgd", "yogi"]
