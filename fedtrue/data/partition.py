"""Partitions of a central data set into clients: each function returns one array of example indices per client.

The same arguments, with the same seed, give the same clients on every machine.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """A non-IID split: each class is distributed over the clients in proportions p ~ Dirichlet(alpha).

    Args:
        labels: the class of every example.
        clients: their number.
        alpha: the smaller, the more the clients differ in their classes.
        seed: the same seed gives the same split.

    Returns:
        The indices of each client's examples. Every example belongs to exactly one client; a client that would be empty
        gets one example of the largest client.

    >>> [len(indices) for indices in dirichlet(np.array([0, 0, 1, 1, 1]), clients=2, alpha=0.5, seed=0)]
    [1, 4]
    """
    labels = np.asarray(labels)
    _require(clients >= 1, f"clients={clients}", "at least 1")
    _require(clients <= len(labels), f"clients={clients}", f"at most the number of examples, {len(labels)}")
    _require(alpha > 0, f"alpha={alpha}", "above 0")
    generator = np.random.default_rng(seed)
    owner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        of_class = generator.permutation(np.flatnonzero(labels == label))
        proportions = generator.dirichlet(np.full(clients, alpha))
        ends = np.floor(np.cumsum(proportions)[:-1] * len(of_class)).astype(np.int64)
        for client, part in enumerate(np.split(of_class, ends)):
            owner[part] = client
    _fill_empty_clients(owner, clients)
    return by_owner(owner, clients)


def pachinko(
    coarse: np.ndarray,
    fine: np.ndarray,
    clients: int,
    examples_per_client: int,
    alpha_coarse: float = 0.1,
    alpha_fine: float = 10.0,
    seed: int = 0,
) -> list[np.ndarray]:
    """The Pachinko allocation of Reddi et al. (Adaptive Federated Optimization, appendix on CIFAR-100).

    A client draws θ ~ Dirichlet(alpha_coarse) over the coarse labels and, for each, φ ~ Dirichlet(alpha_fine) over its
    fine labels. For each example it draws a coarse label by θ, then a fine label by φ, and takes an example of that
    label without replacement. A label without examples left is removed, and the other weights are renormalised.

    Args:
        coarse: the coarse label of every example.
        fine: the fine label of every example.
        clients: their number.
        examples_per_client: the same for all clients.
        alpha_coarse: the smaller, the more the clients differ in their coarse labels.
        alpha_fine: likewise for the fine labels.
        seed: the same seed gives the same split.

    Returns:
        The indices of each client's examples.
    """
    coarse, fine = np.asarray(coarse), np.asarray(fine)
    requested = f"{clients} clients of {examples_per_client} examples"
    _require(min(clients, examples_per_client) >= 1, requested, "at least 1 of each")
    _require(clients * examples_per_client <= len(fine), requested, f"at most {len(fine)} examples in total")
    _require(min(alpha_coarse, alpha_fine) > 0, f"alphas {alpha_coarse}, {alpha_fine}", "above 0")
    generator = np.random.default_rng(seed)
    remaining = _shuffled_indices(coarse, fine, generator)
    return [
        _pachinko_client(remaining, examples_per_client, alpha_coarse, alpha_fine, generator) for _ in range(clients)
    ]


def by_owner(owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """The ascending indices of each client's examples; `owner[i]` is the client of example i."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, clients)))


def _require(holds: bool, value: str, cure: str) -> None:
    if not holds:
        raise ValueError(f"cannot partition the data with {value}: choose {cure}")


def _fill_empty_clients(owner: np.ndarray, clients: int) -> None:
    sizes = np.bincount(owner, minlength=clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        owner[np.flatnonzero(owner == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] = 1


RemainingIndices = dict[int, dict[int, list[int]]]  # coarse label → fine label → indices not taken yet, shuffled


def _shuffled_indices(coarse: np.ndarray, fine: np.ndarray, generator: np.random.Generator) -> RemainingIndices:
    remaining: RemainingIndices = {}
    for coarse_label in np.unique(coarse):
        has_label = coarse == coarse_label
        remaining[int(coarse_label)] = {
            int(fine_label): generator.permutation(np.flatnonzero(has_label & (fine == fine_label))).tolist()
            for fine_label in np.unique(fine[has_label])
        }
    return remaining


def _pachinko_client(
    remaining: RemainingIndices, examples: int, alpha_coarse: float, alpha_fine: float, generator: np.random.Generator
) -> np.ndarray:
    coarse_weights = _draw_weights(remaining, alpha_coarse, generator)
    fine_weights = {label: _draw_weights(indices, alpha_fine, generator) for label, indices in remaining.items()}
    taken = np.empty(examples, np.int64)
    for position in range(examples):
        coarse_label = _draw_label(coarse_weights, generator)
        fine_label = _draw_label(fine_weights[coarse_label], generator)
        taken[position] = remaining[coarse_label][fine_label].pop()
        if not remaining[coarse_label][fine_label]:
            del remaining[coarse_label][fine_label], fine_weights[coarse_label][fine_label]
        if not remaining[coarse_label]:
            del remaining[coarse_label], coarse_weights[coarse_label]
    return taken


def _draw_weights(labels: Mapping[int, Any], alpha: float, generator: np.random.Generator) -> dict[int, float]:
    return dict(zip(labels, generator.dirichlet(np.full(len(labels), alpha))))


def _draw_label(weights: dict[int, float], generator: np.random.Generator) -> int:
    """One of the labels, with probability proportional to its weight; uniform if all weights are 0."""
    total = sum(weights.values())
    target = generator.random() * total
    for label, weight in weights.items():
        target -= weight
        if target < 0:
            return label
    return list(weights)[int(generator.integers(len(weights)))] if total == 0 else label
