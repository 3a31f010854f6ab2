"""Draws use exact integer arithmetic, also for a million clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedtrue.algorithm.sampling import client_sizes, random_below
from fedtrue.spec import FACTORIES, from_spec

MILLION = 1_000_000


def drawn(sampling, sizes, cohort, seed=0):
    table = client_sizes(sizes)
    return jax.jit(lambda key: sampling.draw(key, table, cohort, None))(jax.random.key(seed))


def chi_square(counts, expected):
    """z of the chi-square statistic: (χ² − k) / √(2k) for k cells, about normal for many of them."""
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - len(counts)) / np.sqrt(2 * len(counts))


def test_by_size_draws_a_million_clients_in_proportion_to_their_sizes():
    """As in Stack Overflow: 1 to 128 examples per client, 64.5 million in total. Grouped by size: 128 cells."""
    sizes = np.random.default_rng(0).integers(1, 129, MILLION)
    clients = np.asarray(drawn(from_spec("by_size", "sampling"), sizes, 2_000_000).clients)
    counts = np.bincount(sizes[clients], minlength=129)[1:]
    in_all = np.bincount(sizes, minlength=129)[1:] * np.arange(1, 129)
    assert abs(chi_square(counts, len(clients) * in_all / in_all.sum())) < 4
    blocks = np.bincount(clients // 10_000, minlength=100)  # and grouped by position: float32 sums would drift
    shares = np.add.reduceat(sizes, np.arange(0, MILLION, 10_000)) / sizes.sum()
    assert abs(chi_square(blocks, len(clients) * shares)) < 4


@pytest.mark.parametrize("clients", [100_000, pytest.param(MILLION, marks=pytest.mark.slow)])
def test_by_size_draws_every_client_eventually(clients):
    """1 to 3 examples each, 40 draws per client: one with 1 of 2 · clients examples is missed with chance e⁻²⁰."""
    sizes, seen = np.random.default_rng(1).integers(1, 4, clients), np.zeros(clients, bool)
    sampling, table = from_spec("by_size", "sampling"), client_sizes(sizes)
    draw = jax.jit(lambda key: sampling.draw(key, table, 4 * clients, None).clients)
    for key in jax.random.split(jax.random.key(0), 10):
        seen[np.asarray(draw(key))] = True
    assert seen.all()


@pytest.mark.parametrize("bound", [1, 7, 2**16, 64_548_257, 2**32 - 1])
def test_random_integers_are_the_upper_word_of_a_product_of_96_bits(bound):
    key = jax.random.key(5)
    found = np.asarray(random_below(key, 1000, jnp.uint32(bound)))
    high, low = (words.astype(object) for words in np.asarray(jax.random.bits(key, (2, 1000), jnp.uint32)))
    assert found.tolist() == [(bound * (int(upper) * 2**32 + int(lower))) >> 64 for upper, lower in zip(high, low)]


def test_the_smallest_and_the_largest_random_integer_draw_the_first_and_the_last_client():
    table = client_sizes(np.array([2, 0, 3]))
    assert table.tickets.tolist() == [2, 2, 5] and table.tickets.dtype == jnp.uint32
    clients = np.asarray(drawn(from_spec("by_size", "sampling"), np.array([2, 0, 3]), 10_000).clients)
    assert set(clients) == {0, 2}  # a client without examples is never drawn


@pytest.mark.parametrize("sizes", [np.array([0.1, 0.3, 0.6]), np.array([1e9, 3e9, 6e9])], ids=["shares", "huge"])
def test_sizes_above_32_bits_are_drawn_in_proportion(sizes):
    tickets = np.diff(np.asarray(client_sizes(sizes).tickets, np.float64), prepend=0)
    np.testing.assert_allclose(tickets / tickets.sum(), sizes / sizes.sum(), rtol=1e-8)


@pytest.mark.parametrize("name", list(FACTORIES["sampling"]))
def test_a_draw_contains_the_expected_count_of_each_of_its_clients(name):
    sizes, cohort, draws = np.array([1, 2, 3, 10]), 2, 40_000
    sampling, table = from_spec(name, "sampling"), client_sizes(sizes)
    keys = jax.random.split(jax.random.key(2), draws)
    found = jax.vmap(lambda key: sampling.draw(key, table, cohort, None))(keys)
    counts = np.bincount(np.asarray(found.clients).ravel(), minlength=4) / draws
    expected = cohort * sampling.probability(sizes)
    np.testing.assert_allclose(counts, expected, atol=0.02)
    np.testing.assert_allclose(
        1 / np.asarray(found.inverse_probability), expected[np.asarray(found.clients)], rtol=1e-5
    )
    assert np.asarray(found.active).all()
    repeated = bool((np.diff(np.sort(np.asarray(found.clients), axis=1), axis=1) == 0).any())
    assert repeated == sampling.with_replacement
