"""Tables written as TOML are read back unchanged."""

import math
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.runner import folder
from fedtrue.runner.toml import read, to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # lone surrogates are not valid text
PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
TABLES = st.recursive(
    st.dictionaries(TEXT, VALUES, max_size=4),
    lambda inner: st.dictionaries(TEXT, VALUES | inner.filter(bool), max_size=4),
    max_leaves=8,
)


@given(TABLES)
def test_any_table_is_read_back_unchanged(table):
    found = tomllib.loads(to_toml(table))
    assert found == table
    assert all(type(found[key]) is type(table[key]) for key in table)  # 1.0 does not become 1


def test_none_is_left_out_and_so_is_an_empty_table():
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None, "d": 1}, "e": {}, "f": {"g": None}})) == {"b": {"d": 1}}


def test_nan_and_infinity_read_back():
    found = tomllib.loads(to_toml({"a": math.nan, "b": -math.inf}))
    assert math.isnan(found["a"])
    assert found["b"] == -math.inf


def test_tuples_are_written_as_lists_at_any_depth():
    assert tomllib.loads(to_toml({"steps": (1, 20), "grid": {"rates": [(0.1,), ()]}})) == {
        "steps": [1, 20],
        "grid": {"rates": [[0.1], []]},
    }


@pytest.mark.parametrize(
    "value, plain",
    [
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.bool_(True), True),
        (np.array(2.5), 2.5),
        (jnp.array(2.5), 2.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_numpy_and_jax_are_written_as_numbers(value, plain):
    found = tomllib.loads(to_toml({"one": value, "some": [value]}))
    assert found == {"one": plain, "some": [plain]}
    assert type(found["one"]) is type(plain)


@pytest.mark.parametrize(
    "table, key",
    [
        ({"client": {"rate": object()}}, "client.rate"),
        ({"steps": [1, None]}, "steps"),
        ({"start": np.zeros(2)}, "start"),
        ({"names": {"a"}}, "names"),
        ({"client": [{"rate": len}]}, "client.rate"),
    ],
)
def test_values_that_toml_lacks_are_refused_in_one_line_that_names_the_key(table, key):
    with pytest.raises(ValueError, match=r"cannot be written as TOML: use numbers, strings, lists and tables") as error:
        to_toml(table)
    assert str(error.value).startswith(f"{key}: ")
    assert "\n" not in str(error.value)


def test_a_key_that_is_not_text_is_refused_by_name():
    with pytest.raises(ValueError, match=r"client\.1: a key in TOML must be a string"):
        to_toml({"client": {1: 2}})


def test_a_file_that_does_not_exist_or_is_not_toml_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a\.toml does not exist: give a task's name"):
        read(tmp_path / "a.toml", "a task's name")
    (tmp_path / "b.toml").write_text("rounds =")
    with pytest.raises(ValueError, match=r"b\.toml is not TOML: "):
        read(tmp_path / "b.toml", "a task's name")
    (tmp_path / "c.toml").write_bytes(b"label = '\xff'")
    with pytest.raises(ValueError, match=r"c\.toml is not TOML: "):
        read(tmp_path / "c.toml", "a task's name")


def test_the_settings_of_a_run_folder_read_back_equal(tmp_path):
    settings = {
        "task": "quadratic",
        "rounds": 3,
        "client": {"name": "adagrad", "learning_rate": 1e-07},
        "local_steps": [1, 2, 3],
        "label": 'größer "than"\n\x7f\\',
    }
    folder.make(tmp_path / "run", settings)
    found = read(tmp_path / "run" / "config.toml", "a run folder")
    assert found.pop("origin")["version"]
    assert found == settings
