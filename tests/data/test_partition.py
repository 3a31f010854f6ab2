"""Laws of partitioning data into clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrue.data import partition

COARSE = np.repeat(np.arange(4), 60)  # 4 coarse labels of 3 fine ones of 20 examples
FINE = np.repeat(np.arange(12), 20)


def distance_from_all_data(labels: np.ndarray, parts: list[np.ndarray]) -> float:
    """Mean total variation distance between a client's class frequencies and those of all data."""
    classes = labels.max() + 1
    overall = np.bincount(labels, minlength=classes) / len(labels)
    of_clients = [np.bincount(labels[part], minlength=classes) / len(part) for part in parts]
    return float(np.mean([np.abs(frequencies - overall).sum() / 2 for frequencies in of_clients]))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0.01, 100.0), st.integers(0, 2**32 - 1))
def test_dirichlet_assigns_every_example_to_exactly_one_client_and_leaves_no_client_empty(data, alpha, seed):
    labels = np.array(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=200)))
    clients = data.draw(st.integers(1, len(labels)))
    parts = partition.dirichlet(labels, clients, alpha, seed)
    assert len(parts) == clients and all(len(part) > 0 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 24), st.integers(1, 10), st.floats(0.01, 10.0), st.integers(0, 2**32 - 1))
def test_pachinko_gives_each_client_the_same_number_of_examples_and_no_example_twice(
    clients, examples, alpha_coarse, seed
):
    parts = partition.pachinko(COARSE, FINE, clients, examples, alpha_coarse, seed=seed)
    assert [len(part) for part in parts] == [examples] * clients
    assert len(set(np.concatenate(parts))) == clients * examples


def test_pachinko_can_use_up_every_example():
    parts = partition.pachinko(COARSE, FINE, clients=24, examples_per_client=10, alpha_coarse=0.01, seed=3)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(240))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_every_partition_by_size_or_shards_assigns_every_example_to_exactly_one_client(data, seed):
    labels = np.array(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=200)))
    examples, clients = len(labels), data.draw(st.integers(1, len(labels)))
    partitions = [
        partition.iid(examples, clients, seed),
        partition.power_law(examples, clients, seed, data.draw(st.floats(0.0, 4.0))),
        partition.dirichlet_sizes(examples, clients, seed, data.draw(st.floats(0.01, 100.0))),
    ]
    per_client = data.draw(st.integers(1, 4))
    if len(np.unique(labels)) <= clients * per_client <= examples:
        partitions.append(partition.shards(labels, clients, seed, per_client))
    for parts in partitions:
        assert len(parts) == clients and all(len(part) > 0 for part in parts)
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(examples))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_with_k_shards_per_client_no_client_holds_more_than_k_labels(shards, seed):
    labels = np.random.default_rng(seed).choice(7, 300, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])
    parts = partition.shards(labels, 20, seed, shards)
    assert max(len(np.unique(labels[part])) for part in parts) <= shards


def test_the_larger_alpha_the_nearer_dirichlet_is_to_an_iid_split():
    labels = np.random.default_rng(0).integers(0, 10, 20_000)
    iid = distance_from_all_data(labels, partition.iid(len(labels), 20, 0))
    distances = [
        distance_from_all_data(labels, partition.dirichlet(labels, 20, alpha, 0)) for alpha in (1.0, 100.0, 1e6)
    ]
    assert distances[0] > 5 * iid  # 1,000 examples per client: the IID distance is sampling noise, about 0.03
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < iid  # at α = 1e6 each class is divided equally, without sampling noise


def test_sizes_follow_the_power_law():
    sizes = np.array([len(part) for part in partition.power_law(100_000, 50, seed=0, exponent=1.5)])
    ideal = np.arange(1, 51) ** -1.5
    assert np.abs(sizes - 100_000 * ideal / ideal.sum()).max() <= 1  # rounded to whole examples


def test_sizes_differ_more_the_smaller_alpha_and_classes_stay_iid():
    labels = np.random.default_rng(0).integers(0, 10, 20_000)
    split = lambda alpha: partition.dirichlet_sizes(len(labels), 20, 0, alpha)
    spread = [np.std([len(part) for part in split(alpha)]) for alpha in (100.0, 1.0, 0.1)]
    assert spread == sorted(spread)
    large = [part for part in split(1.0) if len(part) > 500]
    assert distance_from_all_data(labels, large) < 0.06  # sampling noise


def test_by_default_pachinko_uses_as_many_examples_as_it_can():
    assert [len(part) for part in partition.pachinko(COARSE, FINE, clients=7)] == [240 // 7] * 7


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dirichlt", {}, "did you mean 'dirichlet'"),
        ("dirichlet", {}, "partition 'dirichlet' needs alpha"),
        ("dirichlet", {"alfa": 1.0}, r"has no alfa \(did you mean 'alpha'\?\): it takes alpha"),
        ("iid", {"alpha": 1.0}, "partition 'iid' has no alpha: it takes no options"),
    ],
)
def test_a_wrong_partition_or_option_is_refused_with_the_nearest(name, options, message):
    with pytest.raises(ValueError, match=message):
        partition.partition_by_name(name, 2, 0, {"examples": 4, "labels": np.zeros(4)}, options)


def test_the_same_seed_gives_the_same_clients_and_another_seed_others():
    for split in (
        lambda seed: partition.iid(len(FINE), 10, seed),
        lambda seed: partition.shards(FINE, 10, seed),
        lambda seed: partition.power_law(len(FINE), 10, seed),
        lambda seed: partition.dirichlet_sizes(len(FINE), 10, seed),
        lambda seed: partition.dirichlet(FINE, 10, 0.5, seed),
        lambda seed: partition.pachinko(COARSE, FINE, 10, 20, seed=seed),
    ):
        first, again, other = split(1), split(1), split(2)
        assert all(np.array_equal(a, b) for a, b in zip(first, again))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other))


def test_the_smaller_alpha_the_more_the_clients_differ():
    labels = np.random.default_rng(0).integers(0, 10, 5000)
    dirichlet = [distance_from_all_data(labels, partition.dirichlet(labels, 50, alpha, 0)) for alpha in (100, 1, 0.1)]
    assert dirichlet == sorted(dirichlet) and dirichlet[-1] > 3 * dirichlet[0]
    coarse, fine = np.repeat(np.arange(20), 500), np.repeat(np.arange(100), 100)
    parts = [partition.pachinko(coarse, fine, 50, 50, alpha, seed=0) for alpha in (100.0, 1.0, 0.1)]
    pachinko = [distance_from_all_data(coarse, part) for part in parts]
    assert pachinko == sorted(pachinko) and pachinko[-1] > 2 * pachinko[0]


def test_pachinko_mixes_the_fine_labels_below_a_coarse_one():
    coarse, fine = np.repeat(np.arange(20), 500), np.repeat(np.arange(100), 100)
    parts = partition.pachinko(coarse, fine, 20, 100, alpha_coarse=0.1, alpha_fine=10.0, seed=0)
    favourites = [np.bincount(coarse[part]).argmax() for part in parts]
    below = [len(set(fine[part][coarse[part] == favourite])) for part, favourite in zip(parts, favourites)]
    assert np.median(below) == 5  # all five fine labels of the favourite coarse label


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda: partition.dirichlet(FINE, 0, 1.0, 0), "clients=0: choose at least 1"),
        (lambda: partition.dirichlet(FINE, 241, 1.0, 0), "clients=241: choose at most the number of examples, 240"),
        (lambda: partition.dirichlet(FINE, 2, 0.0, 0), "alpha=0.0: choose above 0"),
        (lambda: partition.iid(240, 0, 0), "clients=0: choose at least 1"),
        (lambda: partition.power_law(240, 2, 0, -1.0), "exponent=-1.0: choose at least 0"),
        (lambda: partition.dirichlet_sizes(240, 2, 0, 0.0), "alpha=0.0: choose above 0"),
        (
            lambda: partition.shards(FINE, 5, 0, 2),
            "5 clients of 2 shards: choose at least as many shards as labels, 12",
        ),
        (lambda: partition.shards(FINE, 200, 0, 2), "200 clients of 2 shards: choose at most as many shards as exa"),
        (
            lambda: partition.pachinko(COARSE, FINE, 25, 10),
            "25 clients of 10 examples: choose at most 240 examples in total",
        ),
        (lambda: partition.pachinko(COARSE, FINE, 0, 10), "0 clients of 10 examples: choose at least 1 of each"),
        (lambda: partition.pachinko(COARSE, FINE, 1, 1, alpha_fine=-1.0), "alphas 0.1, -1.0: choose above 0"),
    ],
)
def test_impossible_partitions_are_refused_with_the_cure(split, message):
    with pytest.raises(ValueError, match=f"cannot partition the data with {message}"):
        split()


@given(st.lists(st.integers(0, 7), max_size=50))
def test_grouping_by_owner_inverts_ownership(owner):
    parts = partition.by_owner(np.array(owner, np.int64), 8)
    assert len(parts) == 8
    assert [client for index in range(len(owner)) for client in range(8) if index in parts[client]] == owner
