"""Laws of the LEAF source."""

import json

import layouts
import numpy as np
import pytest

from fedtrue.data import leaf


def leaf_file(user_data: dict, /, **changes) -> bytes:
    content = {
        "users": list(user_data),
        "num_samples": [len(data["y"]) for data in user_data.values()],
        "user_data": user_data,
    }
    return json.dumps({**content, **changes}).encode()


FEMNIST = {"f0001": {"x": [[0.0, 0.5], [1.0, 0.25]], "y": [3, 61]}, "f0002": {"x": [[0.0, 0.0]], "y": [0]}}


def test_numbers_become_arrays_and_text_stays_text(tmp_path):
    (_, image), *_ = leaf.read(layouts.write(tmp_path / "femnist.json", leaf_file(FEMNIST)))
    assert image["x"].dtype == np.float32 and image["x"].tolist() == [0.0, 0.5] and image["y"] == 3
    play = {"THE_FOOL": {"x": ["to be or no"], "y": ["t"]}}
    assert list(leaf.read(layouts.write(tmp_path / "play.json", leaf_file(play)))) == [
        ("THE_FOOL", {"x": "to be or no", "y": "t"})
    ]
    tweet = {"ann": {"x": [["12", "Mon", "ann", "good day"]], "y": [1]}}
    assert next(leaf.read(layouts.write(tmp_path / "t.json", leaf_file(tweet))))[1]["x"][3] == "good day"


def test_the_files_of_a_folder_are_read_sorted_by_name(tmp_path):
    layouts.write(tmp_path / "b.json", leaf_file({"second": {"x": ["b"], "y": [1]}}))
    layouts.write(tmp_path / "a.json", leaf_file({"first": {"x": ["a"], "y": [0]}}))
    assert [user for user, _ in leaf.read(tmp_path)] == ["first", "second"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_samples": [2, 2]}, "user 'f0002' has 1 x and 1 y, but num_samples says 2"),
        ({"num_samples": [2]}, "2 users but 1 entries in num_samples"),
        ({"users": ["f0001", "ghost"]}, "user 'ghost' has no entry in user_data"),
        ({"user_data": {**FEMNIST, "f0001": {"x": [], "y": [3, 61]}}}, "user 'f0001' has 0 x and 2 y"),
    ],
)
def test_counts_that_disagree_are_an_error(tmp_path, changes, message):
    path = layouts.write(tmp_path / "leaf.json", leaf_file(FEMNIST, **changes))
    with pytest.raises(ValueError, match=rf"leaf\.json is damaged \({message}"):
        list(leaf.read(path))


def test_users_without_examples_are_left_out_and_named(tmp_path):
    empty = {"x": [], "y": []}
    path = layouts.write(tmp_path / "leaf.json", leaf_file({"none": empty, **FEMNIST, "f0003": empty}))
    with pytest.warns(UserWarning, match=r"leaf\.json: 2 users without examples are left out: none, f0003"):
        assert {user for user, _ in leaf.read(path)} == set(FEMNIST)


def test_other_content_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is damaged \\(not JSON"):
        list(leaf.read(layouts.truncate(layouts.write(tmp_path / "leaf.json", leaf_file(FEMNIST)))))
    with pytest.raises(ValueError, match="has no num_samples, user_data, users: give a file in LEAF's layout"):
        list(leaf.read(layouts.write(tmp_path / "list.json", b"[]")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty contains no \.json file"):
        list(leaf.read(tmp_path / "empty"))
