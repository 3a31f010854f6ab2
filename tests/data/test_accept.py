"""What users have becomes ClientData, or is refused with the cure."""

import numpy as np
import pytest

import fedtrue as ft
from fedtrue.data.accept import as_client_data

CLIENTS = {"ann": {"x": [1.0, 2.0]}, "bob": {"x": [3.0]}}


def test_a_dict_of_clients_keeps_their_names_through_views_and_splits():
    data = as_client_data(CLIENTS)
    assert list(data.names) == ["ann", "bob"]
    assert list(data.take(1).names) == ["ann", "bob"]
    assert list(data.subset([1]).names) == ["bob"]
    assert [name for part in data.split_clients(0.5, 0) for name in part.names] in (["ann", "bob"], ["bob", "ann"])
    assert list(data.split_within(0.5)[1].names) == ["ann"]


def test_a_list_of_clients_has_no_names():
    data = as_client_data(list(CLIENTS.values()))
    assert data.names is None and data.take(1).names is None and data.subset([1]).names is None


def test_client_data_is_returned_as_it_is():
    data = as_client_data(CLIENTS)
    assert as_client_data(data) is data


def table_of(package):
    module = pytest.importorskip(package, reason=f"{package} is not installed")
    makers = {
        "pandas": lambda columns: module.DataFrame(columns),
        "pyarrow": lambda columns: module.table(columns),
        "datasets": lambda columns: module.Dataset.from_dict(columns),
    }
    return makers[package]({"user": [1, 2], "x": [0.5, 0.25]})


@pytest.mark.parametrize(
    ("package", "reader"),
    [("pandas", "from_pandas"), ("pyarrow", "from_arrow"), ("datasets", "from_huggingface")],
)
def test_a_table_without_a_client_column_is_refused_with_the_call_that_reads_it(package, reader):
    table = table_of(package)
    with pytest.raises(ValueError, match=rf"clients is a \w+, .*use ft.data.{reader}\(\w+, client=COLUMN"):
        as_client_data(table)
    with pytest.raises(ValueError, match=f"test is a .*use ft.data.{reader}"):
        ft.tasks.from_arrays(CLIENTS, lambda key: 0.0, lambda params, example: 0.0, test=table)


def test_a_data_set_dict_is_a_table_too_not_a_dict_of_clients():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    with pytest.raises(ValueError, match=r"clients is a DatasetDict, .*from_huggingface"):
        as_client_data(datasets.DatasetDict({"train": table_of("datasets")}))


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"x": [1.0], "y": [2.0]}, r"clients is one dict of columns \(x, y\): put it into a list"),
        ([[1.0]], "client 0 has the type list: give a dict from column names to arrays"),
        ({"ann": {"x": [1.0]}, "bob": [1.0]}, "client 'bob' has the type list"),
        ("clients.csv", "clients has the type str: give a list of dicts"),
        (np.zeros((3, 2)), "clients has the type ndarray"),
        ([], "no clients"),
        ({"ann": {"x": [1.0, 2.0], "y": [1]}}, r"client 'ann' has columns of unequal length \{'x': 2, 'y': 1\}"),
        ({"ann": {"x": [1.0]}, "bob": {"x": []}}, "client 'bob' has no examples"),
        ({"ann": {"x": [1.0]}, "bob": {"x": [1.0, np.nan]}}, "column 'x' of client 'bob' is NaN in example 1"),
        ([{"x": [[1.0, 2.0], [np.nan, 1.0]]}], "column 'x' of client 0 is NaN in example 1"),
        (
            {"ann": {"x": [1.0]}, "bob": {"x": [1.0, np.inf]}},
            "column 'x' of client 'bob' is infinite in example 1: correct",
        ),
        ([{"x": [[1.0, -np.inf], [np.nan, 1.0]]}], "column 'x' of client 0 is infinite in example 0"),
        ({"ann": {"x": ["red"]}}, r"column 'x' holds strings such as 'red', .*from_dicts\(…, label='x'\)"),
        ({"ann": {"x": np.array(["2020-01-01"], "M8[D]")}}, "column 'x' has the dtype datetime64"),
        ({"ann": {"x": [object()]}}, "column 'x' of client 'ann' holds Python objects"),
        ({"ann": {"mask": [1.0]}}, "the column name 'mask' is used by batches"),
    ],
)
def test_what_is_no_clients_is_refused_with_the_cure(clients, message):
    with pytest.raises(ValueError, match=message):
        as_client_data(clients)


@pytest.mark.parametrize(("value", "said"), [(np.nan, "NaN"), (np.inf, "infinite")])
def test_a_bad_number_outside_the_examples_that_are_used_is_no_error(value, said):
    data = ft.ClientData.from_clients([{"x": [1.0, value]}, {"x": [2.0]}])
    assert as_client_data(data.take(1)).examples == 2
    with pytest.raises(ValueError, match=f"client 0 is {said} in example 1"):
        as_client_data(data)


def test_test_data_with_other_classes_is_refused():
    read = lambda labels: ft.data.from_dicts({"ann": {"x": [1.0, 2.0], "y": labels}}, label="y")
    task = lambda test: ft.tasks.from_arrays(
        read(["cat", "dog"]), lambda key: np.zeros(()), lambda params, example: params, test=test
    )
    with pytest.raises(ValueError, match=r"stand for different classes .*read test with classes=train\.classes"):
        task(read(["dog", "owl"]))
    assert task(read(["dog", "cat"])).test.columns["y"].tolist() == [1, 0]
