"""Ways to divide a central data set among clients; each is a list of index arrays, one per client.

Every function is determined by its arguments: the same seed gives the same clients on every machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """Each class is divided among the clients in proportions p ~ Dirichlet(alpha); small alpha, unlike clients.

    Every example goes to exactly one client. A client left empty takes one example from the largest.
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

    A client draws θ ~ Dirichlet(alpha_coarse) over coarse labels and, below each, φ ~ Dirichlet(alpha_fine) over its
    fine labels; each example is a coarse label by θ, then a fine one by φ, without replacement. A label that runs
    out is taken away for everyone after, and what remains is renormalised.
    """
    coarse, fine = np.asarray(coarse), np.asarray(fine)
    needed = clients * examples_per_client
    _require(min(clients, examples_per_client) >= 1, f"{clients} clients of {examples_per_client}", "at least 1 of 1")
    _require(needed <= len(fine), f"{clients} × {examples_per_client} examples", f"at most the {len(fine)} there are")
    _require(min(alpha_coarse, alpha_fine) > 0, f"alphas {alpha_coarse}, {alpha_fine}", "above 0")
    generator = np.random.default_rng(seed)
    urns = _urns(coarse, fine, generator)
    return [_pachinko_client(urns, examples_per_client, alpha_coarse, alpha_fine, generator) for _ in range(clients)]


def by_owner(owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """The indices that each of `clients` owns, ascending; `owner[i]` is the client of example i."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, clients)))


def as_clients(
    arrays: Mapping[str, np.ndarray], parts: Sequence[np.ndarray], prefix: str = "client"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(client id, example) of a divided data set, as a source yields them; ids sort in the order of `parts`."""
    digits = len(str(len(parts) - 1))
    for client, indices in enumerate(parts):
        for index in indices:
            yield f"{prefix}_{client:0{digits}}", {name: array[index] for name, array in arrays.items()}


def _require(holds: bool, value: str, cure: str) -> None:
    if not holds:
        raise ValueError(f"cannot divide the data with {value}: choose {cure}")


def _fill_empty_clients(owner: np.ndarray, clients: int) -> None:
    sizes = np.bincount(owner, minlength=clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        owner[np.flatnonzero(owner == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] = 1


Urns = dict[int, dict[int, list[int]]]  # coarse label → fine label → shuffled indices of the examples left


def _urns(coarse: np.ndarray, fine: np.ndarray, generator: np.random.Generator) -> Urns:
    urns: Urns = {}
    for coarse_label in np.unique(coarse):
        below = coarse == coarse_label
        urns[int(coarse_label)] = {
            int(fine_label): generator.permutation(np.flatnonzero(below & (fine == fine_label))).tolist()
            for fine_label in np.unique(fine[below])
        }
    return urns


def _pachinko_client(
    urns: Urns, examples: int, alpha_coarse: float, alpha_fine: float, generator: np.random.Generator
) -> np.ndarray:
    over_coarse = _draw_weights(urns, alpha_coarse, generator)
    over_fine = {label: _draw_weights(urn, alpha_fine, generator) for label, urn in urns.items()}
    taken = np.empty(examples, np.int64)
    for position in range(examples):
        coarse_label = _draw_label(over_coarse, generator)
        fine_label = _draw_label(over_fine[coarse_label], generator)
        taken[position] = urns[coarse_label][fine_label].pop()
        if not urns[coarse_label][fine_label]:
            del urns[coarse_label][fine_label], over_fine[coarse_label][fine_label]
        if not urns[coarse_label]:
            del urns[coarse_label], over_coarse[coarse_label]
    return taken


def _draw_weights(labels: Mapping[int, Any], alpha: float, generator: np.random.Generator) -> dict[int, float]:
    return dict(zip(labels, generator.dirichlet(np.full(len(labels), alpha))))


def _draw_label(weights: dict[int, float], generator: np.random.Generator) -> int:
    """One label by its weight among those left; uniform when what is left has no weight at all."""
    total = sum(weights.values())
    target = generator.random() * total
    for label, weight in weights.items():
        target -= weight
        if target < 0:
            return label
    return list(weights)[int(generator.integers(len(weights)))] if total == 0 else label
