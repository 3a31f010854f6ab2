"""Laws of the joined posts source."""

import json

import layouts
import pytest

from fedtrue.data import posts_by_user

JOINED = {
    "travel/9": [{"t": "A title", "b": "A body", "tags": ["travel:cruising"]}, {"t": "", "b": "Again", "tags": []}],
    "beer/7": [{"t": "", "b": "Hops", "tags": []}],
}


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
def test_posts_come_user_by_user_in_the_order_of_the_file(tmp_path, suffix):
    path = layouts.write(tmp_path / f"posts_by_user.json{suffix}", json.dumps(JOINED).encode())
    assert list(posts_by_user.read(path)) == [
        ("travel/9", {"title": "A title", "text": "A body", "tags": ["travel:cruising"]}),
        ("travel/9", {"title": "", "text": "Again", "tags": []}),
        ("beer/7", {"title": "", "text": "Hops", "tags": []}),
    ]


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
def test_a_truncated_file_is_named(tmp_path, suffix):
    path = layouts.truncate(layouts.write(tmp_path / f"posts.json{suffix}", json.dumps(JOINED).encode()))
    with pytest.raises(ValueError, match=r"posts\.json.* is damaged .*nothing was changed"):
        list(posts_by_user.read(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [([1], "is a JSON list, not an object"), ({"u": [{"t": "", "b": ""}]}, "a post of 'u' has no 'tags'")],
)
def test_another_layout_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        list(posts_by_user.read(layouts.write(tmp_path / "posts.json", json.dumps(content).encode())))


@pytest.mark.data
def test_the_real_file_has_its_published_counts():
    posts = list(posts_by_user.read(layouts.real_file("stackexchange", "posts_by_user.json.xz")))
    assert len(posts) == 20_415
    assert len({user for user, _ in posts}) == 5_409
    assert sum(bool(post["tags"]) for _, post in posts) == 8_024
