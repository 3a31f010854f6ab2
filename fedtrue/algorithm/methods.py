"""Named methods, each one expression of parts. A new method is a function here and a row in the table."""

from collections.abc import Callable
from typing import Any

from fedtrue.algorithm import client_optimizer as client
from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.method import Method, fedopt


def fedavg(client_rate: Any, server_rate: Any = 1.0, **parts: Any) -> Method:
    """McMahan et al. 2017: client SGD, the server takes the weighted mean."""
    return fedopt(client.sgd(client_rate), server.sgd(server_rate), correction="none", **parts)


def fedavgm(client_rate: Any, server_rate: Any = 1.0, **parts: Any) -> Method:
    """Hsu et al. 2019: client SGD, server momentum."""
    return fedopt(client.sgd(client_rate), server.momentum(server_rate), correction="none", **parts)


def fedadagrad(client_rate: Any, server_rate: Any = 0.1, **parts: Any) -> Method:
    """Reddi et al. 2021: client SGD, server Adagrad."""
    return fedopt(client.sgd(client_rate), server.adagrad(server_rate), correction="none", **parts)


def fedadam(client_rate: Any, server_rate: Any = 0.1, **parts: Any) -> Method:
    """Reddi et al. 2021: client SGD, server Adam."""
    return fedopt(client.sgd(client_rate), server.adam(server_rate), correction="none", **parts)


def fedyogi(client_rate: Any, server_rate: Any = 0.1, **parts: Any) -> Method:
    """Reddi et al. 2021: client SGD, server Yogi."""
    return fedopt(client.sgd(client_rate), server.yogi(server_rate), correction="none", **parts)


METHODS: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
}
