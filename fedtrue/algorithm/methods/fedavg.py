"""Uncorrected client SGD under different server optimizers."""

from typing import Any

from fedtrue.algorithm import client_optimizer as client
from fedtrue.algorithm import server_optimizer as server
from fedtrue.algorithm.client_update import ClientParts
from fedtrue.algorithm.correction import none
from fedtrue.algorithm.method import Method, federated
from fedtrue.algorithm.sampling import Sampling
from fedtrue.algorithm.server_optimizer import EPSILON, ServerOptimizer
from fedtrue.algorithm.trace import exact
from fedtrue.algorithm.weighting import Weighting
from fedtrue.spec import by_name, named
from fedtrue.types import LearningRate


def _sgd_clients(
    client_rate: Any, optimizer: ServerOptimizer, sampling: Sampling, weighting: Weighting | None
) -> Method:
    return federated(ClientParts(client.sgd(client_rate), exact(), none()), optimizer, sampling, weighting)


@named("method")
def fedavg(
    client_rate: LearningRate,
    server_rate: LearningRate = 1.0,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """McMahan et al. 2017: client SGD, the server takes the weighted mean.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedavg(0.1).name
    'fedavg'
    """
    return _sgd_clients(client_rate, server.sgd(server_rate), sampling, weighting)


@named("method")
def fedavgm(
    client_rate: LearningRate,
    server_rate: LearningRate = 1.0,
    beta: float = 0.9,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Hsu et al. 2019: client SGD, server momentum.

    Args:
        beta: β of the server's momentum.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedavgm(0.1).name
    'fedavgm'
    """
    return _sgd_clients(client_rate, server.momentum(server_rate, beta), sampling, weighting)


@named("method")
def fedadagrad(
    client_rate: LearningRate,
    server_rate: LearningRate = 0.1,
    epsilon: float = EPSILON,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Reddi et al. 2021: client SGD, server Adagrad.

    Args:
        epsilon: ε_s, added to the root.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedadagrad(0.1).name
    'fedadagrad'
    """
    return _sgd_clients(client_rate, server.adagrad(server_rate, epsilon), sampling, weighting)


@named("method")
def fedadam(
    client_rate: LearningRate,
    server_rate: LearningRate = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = EPSILON,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Reddi et al. 2021: client SGD, server Adam.

    Args:
        beta1: β₁ of the server's momentum.
        beta2: β₂ of its squared pseudo-gradients.
        epsilon: ε_s, added to the root.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedadam(0.1).name
    'fedadam'
    """
    return _sgd_clients(client_rate, server.adam(server_rate, beta1, beta2, epsilon), sampling, weighting)


@named("method")
def fedyogi(
    client_rate: LearningRate,
    server_rate: LearningRate = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = EPSILON,
    sampling: Sampling = by_name("uniform"),
    weighting: Weighting | None = None,
) -> Method:
    """Reddi et al. 2021: client SGD, server Yogi.

    Args:
        beta1: β₁ of the server's momentum.
        beta2: β₂ of its squared pseudo-gradients.
        epsilon: ε_s, added to the root.

    Returns:
        A method for `ft.train`.

    >>> import fedtrue as ft
    >>> ft.methods.fedyogi(0.1).name
    'fedyogi'
    """
    return _sgd_clients(client_rate, server.yogi(server_rate, beta1, beta2, epsilon), sampling, weighting)
