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


def test_the_same_seed_gives_the_same_clients_and_another_seed_others():
    for split in (
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
