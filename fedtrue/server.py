"""`ft.server.*`: the server optimizers. Any optax transformation may take their place."""

from fedtrue.algorithm.server_optimizer import adagrad, adam, momentum, sgd, yogi

__all__ = ["adagrad", "adam", "momentum", "sgd", "yogi"]
