"""Partitions of a central data set into clients: each function returns one array of example indices per client.

The same arguments, with the same seed, give the same clients on every machine.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedtrue.names import look_up, suggestion

__all__ = ["dirichlet", "dirichlet_sizes", "iid", "pachinko", "power_law", "shards"]

Parts = list[np.ndarray]  # for each client the indices of its examples


def iid(examples: int, clients: int, seed: int) -> Parts:
    """An IID split: the examples are shuffled and dealt, so that sizes differ by at most one.

    Args:
        examples: their number.
        clients: their number.
        seed: the same seed gives the same split.

    Returns:
        The indices of each client's examples. Every example belongs to exactly one client.

    >>> [len(indices) for indices in iid(examples=7, clients=3, seed=0)]
    [3, 2, 2]
    """
    _check_clients(clients, examples)
    return np.array_split(np.random.default_rng(seed).permutation(examples), clients)


def shards(labels: np.ndarray, clients: int, seed: int, shards_per_client: int = 2) -> Parts:
    """Shards of sorted labels (McMahan et al. 2017): every client gets a few shards, each of a single label.

    The examples of a label are cut into equal shards, more for labels with more examples, and the shards are dealt.

    Args:
        labels: the class of every example.
        clients: their number.
        seed: the same seed gives the same split.
        shards_per_client: a client holds at most this many labels.

    Returns:
        The indices of each client's examples. Every example belongs to exactly one client.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> [labels[indices].tolist() for indices in shards(labels, clients=4, seed=0, shards_per_client=1)]
    [[0, 0], [1, 1], [0, 0], [1, 1]]
    """
    labels = np.asarray(labels)
    present, counts = np.unique(labels, return_counts=True)
    total = clients * shards_per_client
    requested = f"{clients} clients of {shards_per_client} shards"
    _require(min(clients, shards_per_client) >= 1, requested, "at least 1 of each")
    _require(total >= len(present), requested, f"at least as many shards as labels, {len(present)}")
    _require(total <= len(labels), requested, f"at most as many shards as examples, {len(labels)}")
    generator = np.random.default_rng(seed)
    pieces = [
        piece
        for label, count in zip(present, _apportioned(counts, total))
        for piece in np.array_split(generator.permutation(np.flatnonzero(labels == label)), count)
    ]
    dealt = generator.permutation(total).reshape(clients, shards_per_client)
    return [np.concatenate([pieces[shard] for shard in of_client]) for of_client in dealt]


def power_law(examples: int, clients: int, seed: int, exponent: float = 1.0) -> Parts:
    """Quantity skew by a power law: the k-th largest client has a share proportional to k^(−exponent).

    Args:
        examples: their number.
        clients: their number; the first one is the largest.
        seed: determines which examples a client gets.
        exponent: 0 gives equal sizes.

    Returns:
        The indices of each client's examples, drawn uniformly. Every example belongs to exactly one client.

    >>> [len(indices) for indices in power_law(examples=110, clients=3, seed=0)]  # 110/(1 + 1/2 + 1/3) = 60
    [60, 30, 20]
    """
    _check_clients(clients, examples)
    _require(exponent >= 0, f"exponent={exponent}", "at least 0")
    return _dealt_by_size(examples, np.arange(1, clients + 1) ** -float(exponent), seed)


def dirichlet_sizes(examples: int, clients: int, seed: int, alpha: float = 0.5) -> Parts:
    """Quantity skew by a Dirichlet distribution: the clients' shares of the examples are p ~ Dirichlet(alpha).

    Args:
        examples: their number.
        clients: their number.
        seed: the same seed gives the same split.
        alpha: the smaller, the more the clients differ in size.

    Returns:
        The indices of each client's examples, drawn uniformly. Every example belongs to exactly one client.

    >>> [len(indices) for indices in dirichlet_sizes(examples=100, clients=3, seed=0)]
    [63, 36, 1]
    """
    _check_clients(clients, examples)
    _require(alpha > 0, f"alpha={alpha}", "above 0")
    shares = np.random.default_rng([seed, 1]).dirichlet(np.full(clients, alpha))
    return _dealt_by_size(examples, shares, seed)


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> Parts:
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
    _check_clients(clients, len(labels))
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
    examples_per_client: int | None = None,
    alpha_coarse: float = 0.1,
    alpha_fine: float = 10.0,
    seed: int = 0,
) -> Parts:
    """The Pachinko allocation of Reddi et al. (Adaptive Federated Optimization, appendix on CIFAR-100).

    A client draws θ ~ Dirichlet(alpha_coarse) over the coarse labels and, for each, φ ~ Dirichlet(alpha_fine) over its
    fine labels. For each example it draws a coarse label by θ, then a fine label by φ, and takes an example of that
    label without replacement. A label without examples left is removed, and the other weights are renormalised.

    Args:
        coarse: the coarse label of every example.
        fine: the fine label of every example.
        clients: their number.
        examples_per_client: the same for all clients; by default as many as there are. What remains is left out.
        alpha_coarse: the smaller, the more the clients differ in their coarse labels.
        alpha_fine: likewise for the fine labels.
        seed: the same seed gives the same split.

    Returns:
        The indices of each client's examples. No example belongs to two clients.

    >>> coarse, fine = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> [len(indices) for indices in pachinko(coarse, fine, clients=3)]
    [2, 2, 2]
    """
    coarse, fine = np.asarray(coarse), np.asarray(fine)
    if examples_per_client is None:
        examples_per_client = len(fine) // max(clients, 1)
    requested = f"{clients} clients of {examples_per_client} examples"
    _require(min(clients, examples_per_client) >= 1, requested, "at least 1 of each")
    _require(clients * examples_per_client <= len(fine), requested, f"at most {len(fine)} examples in total")
    _require(min(alpha_coarse, alpha_fine) > 0, f"alphas {alpha_coarse}, {alpha_fine}", "above 0")
    generator = np.random.default_rng(seed)
    remaining = _shuffled_indices(coarse, fine, generator)
    return [
        _pachinko_client(remaining, examples_per_client, alpha_coarse, alpha_fine, generator) for _ in range(clients)
    ]


PARTITIONS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "shards": shards,
    "power_law": power_law,
    "dirichlet_sizes": dirichlet_sizes,
    "pachinko": pachinko,
}
DATA_ARGUMENTS = ("examples", "labels", "coarse", "fine")  # of these functions; the others are a user's choices


def data_arguments(name: str) -> list[str]:
    """What a partition needs to know of the examples: their number, labels, coarse and fine labels."""
    taken = inspect.signature(look_up("partition", PARTITIONS, name)).parameters
    return [argument for argument in DATA_ARGUMENTS if argument in taken]


def partition_by_name(name: str, clients: int, seed: int, data: Mapping[str, Any], options: Mapping[str, Any]) -> Parts:
    """The partition `PARTITIONS[name]` of the `data` it needs (see `data_arguments`), with `options` such as alpha."""
    function = look_up("partition", PARTITIONS, name)
    taken = inspect.signature(function).parameters
    valid = [option for option in taken if option not in (*DATA_ARGUMENTS, "clients", "seed")]
    for option in options:
        if option not in valid:
            takes = ", ".join(valid) or "no options"
            raise ValueError(f"partition {name!r} has no {option}{suggestion(option, valid)}: it takes {takes}")
    for option in valid:
        if taken[option].default is inspect.Parameter.empty and option not in options:
            raise ValueError(f"partition {name!r} needs {option}: give a number, e.g. {option}=0.5")
    needed = {argument: data[argument] for argument in data_arguments(name)}
    return function(**needed, clients=clients, seed=seed, **options)


def by_owner(owner: np.ndarray, clients: int) -> Parts:
    """The ascending indices of each client's examples; `owner[i]` is the client of example i."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, clients)))


def _require(holds: bool, value: str, cure: str) -> None:
    if not holds:
        raise ValueError(f"cannot partition the data with {value}: choose {cure}")


def _check_clients(clients: int, examples: int) -> None:
    _require(clients >= 1, f"clients={clients}", "at least 1")
    _require(clients <= examples, f"clients={clients}", f"at most the number of examples, {examples}")


def _dealt_by_size(examples: int, shares: np.ndarray, seed: int) -> Parts:
    """Random examples for every client, in numbers proportional to the shares."""
    order = np.random.default_rng(seed).permutation(examples)
    return np.split(order, np.cumsum(_apportioned(shares, examples))[:-1])


def _apportioned(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers of at least 1 that sum to `total`, as proportional to the shares as that allows."""
    ideal = total * shares / shares.sum()
    counts = np.maximum(np.floor(ideal).astype(np.int64), 1)
    while (missing := total - counts.sum()) > 0:  # fewer than one per client: rounding only
        counts[np.argsort(counts - ideal, kind="stable")[:missing]] += 1
    while counts.sum() > total:  # some were raised to 1
        counts[np.argmax(np.where(counts > 1, counts - ideal, -np.inf))] -= 1
    return counts


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
