import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.data.client_data import ClientData, ClientIds, Ragged

client_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=8)
fractions = st.floats(0.01, 0.99)


def numbered(sizes):
    """Clients whose examples are numbered 0, 1, 2 … over all clients, so that each can be identified."""
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return ClientData.from_clients([{"x": np.arange(a, b)} for a, b in itertools.pairwise(bounds)])


def contents(data):
    return [list(data.client(i)["x"]) for i in range(len(data))]


@given(client_sizes)
def test_client_returns_the_examples_that_from_clients_was_given(sizes):
    data = numbered(sizes)
    assert (len(data), data.examples) == (len(sizes), sum(sizes))
    assert np.concatenate(contents(data)).tolist() == list(range(sum(sizes)))
    assert [len(client) for client in contents(data)] == sizes


@given(client_sizes, st.integers(1, 10))
def test_take_keeps_the_first_examples_of_each_client(sizes, n):
    data = numbered(sizes)
    assert contents(data.take(n)) == [client[:n] for client in contents(data)]


@given(client_sizes, st.data())
def test_subset_picks_clients_and_their_names_in_the_order_given(sizes, draw):
    data = numbered(sizes)
    chosen = draw.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1))
    part = data.subset(chosen)
    assert contents(part) == [contents(data)[i] for i in chosen]
    assert list(part.client_ids) == [str(i) for i in chosen]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), fractions, st.integers(0, 99))
def test_split_clients_is_a_partition_of_the_clients_determined_by_the_seed(sizes, fraction, seed):
    data = numbered(sizes)
    first, second = data.split_clients(fraction, seed)
    assert sorted(contents(first) + contents(second)) == contents(data)
    assert contents(data.split_clients(fraction, seed)[0]) == contents(first)


@given(st.lists(st.integers(1, 9), max_size=8), fractions)
def test_split_within_splits_every_client_and_loses_no_example(sizes, fraction):
    data = numbered([*sizes, 200])  # one client is long enough for any fraction
    head, tail = data.split_within(fraction)
    tails = dict(zip(tail.client_ids, contents(tail)))
    rejoined = [client + tails.get(name, []) for name, client in zip(head.client_ids, contents(head))]
    assert rejoined == contents(data)
    assert all(len(client) >= 1 for client in contents(head) + contents(tail))


def test_data_names_and_ragged_columns_are_shown_in_one_short_line():
    clients = [{"x": np.zeros((size, 28, 28), np.float32), "y": np.arange(size)} for size in (3, 1)]
    data = ClientData.from_clients(clients, ["ann", "bob"])
    assert repr(data) == "ClientData(2 clients 'ann', 'bob'; 4 examples of x float32 (28, 28), y int64)"
    assert repr(data.take(1).subset([1])) == "ClientData(1 client 'bob'; 1 example of x float32 (28, 28), y int64)"
    assert repr(data.client_ids) == "ClientIds(2: 'ann', 'bob')"
    words = Ragged.from_rows([np.array([1, 2], np.int32), np.array([3], np.int32)])
    assert repr(words) == "Ragged(2 rows of int32, at most 2 long)"
    assert repr(replace(data, columns={"words": words})).endswith("4 examples of words int32 (ragged))")
    many = ClientData.from_clients([{"x": np.zeros(1)}] * 1000)
    assert repr(many) == "ClientData(1,000 clients '0', '1', '2', '3', '4', …; 1,000 examples of x float64)"
    assert repr(many.client_ids[:0]) == "ClientIds(0)"


def test_a_client_with_one_example_is_in_the_head_only():
    head, tail = numbered([1, 4]).split_within(0.1)
    assert contents(head) == [[0], [1]]
    assert contents(tail) == [[2, 3, 4]]


def test_views_share_the_examples():
    data = numbered([3, 1, 5])
    views = [data.take(2), data.subset([2]), *data.split_clients(0.5, 0), *data.split_within(0.5)]
    assert all(view.columns["x"] is data.columns["x"] for view in views)
    assert np.shares_memory(data.client(2)["x"], data.columns["x"])


def test_statistics_are_those_of_the_examples_per_client():
    statistics = numbered(range(1, 12)).statistics()  # 11 clients with 1, 2 … 11 examples
    assert (statistics.clients, statistics.examples) == (11, 66)  # 11·12/2
    assert (statistics.smallest, statistics.percentile_10, statistics.median) == (1, 2.0, 6.0)
    assert (statistics.mean, statistics.percentile_90, statistics.largest) == (6.0, 10.0, 11)


@given(st.lists(st.text()))
def test_client_names_in_any_script_are_read_back(names):
    ids = ClientIds.from_names(names)
    assert list(ids) == names
    assert list(ids[1:]) == names[1:]


@given(st.lists(st.lists(st.integers(0, 9)), min_size=1), st.data())
def test_padded_rows_are_the_rows_followed_by_fill(rows, draw):
    ragged = Ragged.from_rows([np.array(row, np.int64) for row in rows])
    chosen = draw.draw(st.lists(st.integers(0, len(rows) - 1)))
    expected = [rows[r] + [-1] * (ragged.width - len(rows[r])) for r in chosen]
    assert ragged.padded(chosen, fill=-1).tolist() == expected
    assert [ragged[r].tolist() for r in range(len(ragged))] == rows
    assert ragged.width == max(map(len, rows))


def test_client_returns_a_ragged_column_as_a_list_of_rows():
    ragged = Ragged.from_rows([np.array([1, 2]), np.array([3]), np.array([], int)])
    data = ClientData({"words": ragged}, np.array([0, 1]), np.array([1, 2]), ClientIds.from_names("ab"))
    assert [row.tolist() for row in data.client(1)["words"]] == [[3], []]


@pytest.mark.parametrize(
    "clients, message",
    [
        ([], "no clients"),
        ([{"x": [1]}, {"x": []}], "client 1 has no examples"),
        ([{"x": [1]}, {}], "client 1 has no columns"),
        ([{"x": [1], "y": [1, 2]}], r"client 0 has columns of unequal length \{'x': 1, 'y': 2\}"),
        ([{"x": [1]}, {"y": [1]}], r"client 1 has columns \['y'\] but client 0 has \['x'\]"),
        ([{"x": [[1, 2]]}, {"x": [[1]]}], r"shape \(1,\) at client 1 but \(2,\) at client 0"),
        ([{"x": np.array([None])}], "column 'x' of client 0 holds Python objects"),
        ([{"x": [[1], [1, 2]]}], "column 'x' of client 0 has rows of different shapes"),
        ([{"x": 3}], "column 'x' of client 0 is a single value"),
    ],
)
def test_clients_that_cannot_be_joined_are_refused_with_their_index(clients, message):
    with pytest.raises(ValueError, match=message):
        ClientData.from_clients(clients)


@pytest.mark.parametrize(
    "view, message",
    [
        (lambda data: data.take(0), "at least 1"),
        (lambda data: data.subset([2]), "no client 2: use indices from 0 to 1"),
        (lambda data: data.subset([-1]), "no client -1"),
        (lambda data: data.subset([]), "no clients"),
        (lambda data: data.split_clients(1.0, 0), "fraction is 1.0"),
        (lambda data: data.split_within(0), "fraction is 0"),
        (lambda data: data.split_within(0.9), "use split_clients"),
        (lambda data: data.subset([0]).split_clients(0.5, 0), "use split_within"),
        (lambda data: ClientData.from_clients([{"x": [1]}] * 2, ["a", "a"]), "the same id"),
        (lambda data: ClientData.from_clients([{"x": [1]}] * 2, ["a"]), "1 client ids"),
    ],
)
def test_empty_views_and_wrong_arguments_are_refused_with_the_cure(view, message):
    with pytest.raises(ValueError, match=message):
        view(numbered([1, 2]))
