"""What is written as TOML reads back the same."""

import math
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.runner.toml import to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # a lone surrogate is no text
PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
TABLES = st.recursive(
    st.dictionaries(TEXT, VALUES, max_size=4),
    lambda inner: st.dictionaries(TEXT, VALUES | inner.filter(bool), max_size=4),
    max_leaves=8,
)


@given(TABLES)
def test_any_table_reads_back_as_it_was(table):
    found = tomllib.loads(to_toml(table))
    assert found == table
    assert all(type(found[key]) is type(table[key]) for key in table)  # 1.0 does not become 1


def test_what_is_none_is_left_out_and_so_is_an_empty_table():
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None, "d": 1}, "e": {}})) == {"b": {"d": 1}}


def test_not_a_number_and_infinity_have_words():
    found = tomllib.loads(to_toml({"a": math.nan, "b": -math.inf}))
    assert math.isnan(found["a"])
    assert found["b"] == -math.inf


def test_numbers_of_numpy_are_numbers():
    assert tomllib.loads(to_toml({"rate": np.float64(0.1), "rates": [np.float64(1e-7)]})) == {
        "rate": 0.1,
        "rates": [1e-7],
    }


@pytest.mark.parametrize("value", [object(), [None], np.zeros(2), {1, 2}])
def test_what_toml_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match="cannot be written as TOML: use numbers, strings, lists and tables"):
        to_toml({"key": value})
