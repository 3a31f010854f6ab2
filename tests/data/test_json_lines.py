"""Laws of the JSON lines source."""

import json

import layouts
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.data import json_lines

RECORDS = [
    {"client": "a1", "title": "Title", "text": "Some text", "tags": ["x::y"]},
    {"client": "b2", "text": "Only text"},
    {"client": 7, "title": "Only title", "tags": []},
]


def lines(records: list) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
def test_missing_title_text_or_tags_are_empty(tmp_path, suffix):
    path = layouts.write(tmp_path / f"d.jsonl{suffix}", lines(RECORDS) + b"\n\n")
    assert list(json_lines.read(path)) == [
        ("a1", {"title": "Title", "text": "Some text", "tags": ["x::y"]}),
        ("b2", {"title": "", "text": "Only text", "tags": []}),
        ("7", {"title": "Only title", "text": "", "tags": []}),
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"client": "a", "te', "line 3 is not JSON .*: correct the line or download the file again"),
        (b"\xff\xfe", "line 3 is not JSON"),
        (b'["a"]', "line 3 is not an object with 'client'"),
        (b'{"text": "t"}', "line 3 is not an object with 'client'"),
        (b'{"client": "a", "tags": []}', "line 3 is not an object with 'client' and 'text' or 'title'"),
        (b'{"client": "a", "text": 5}', "line 3: 'text' is 5, not a string"),
        (b'{"client": "a", "text": "", "tags": "x"}', "line 3: 'tags' is 'x', not a list of strings"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path, bad, message):
    path = layouts.write(tmp_path / "d.jsonl", lines(RECORDS[:2]) + b"\n" + bad + b"\n")
    with pytest.raises(ValueError, match=rf"d\.jsonl, {message}"):
        list(json_lines.read(path))


def test_lines_before_a_bad_one_have_already_been_read(tmp_path):
    reader = json_lines.read(layouts.write(tmp_path / "d.jsonl", lines(RECORDS[:1]) + b"\nbad"))
    assert next(reader)[0] == "a1"


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
@given(kept=st.floats(0.3, 0.95))
def test_a_truncated_archive_is_an_error_wherever_it_was_cut(tmp_path_factory, suffix, kept):
    folder = tmp_path_factory.mktemp("cut")
    path = layouts.truncate(layouts.write(folder / f"d.jsonl{suffix}", lines(RECORDS * 20)), kept)
    with pytest.raises(ValueError, match=r"d\.jsonl.* is damaged"):
        list(json_lines.read(path))


@pytest.mark.data
def test_the_real_file_has_its_published_counts():
    examples = list(json_lines.read(layouts.real_file("debian", "descriptions.jsonl.xz")))
    assert len(examples) == 63_482
    assert len({client for client, _ in examples}) == 2_248
    assert len({tag for _, example in examples for tag in example["tags"]}) == 598
