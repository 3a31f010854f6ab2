import bz2
import io
import json
import tarfile

import pytest

from fedtrue.data import vocabulary

WORDS = "the 900\nnaïve 40\nzebra 7\n"
TAGS = {"jax": 3, "python": 50, "numpy": 3, "c": 20}


def archived(path, content):
    """`path` packed as published: <name>.tar.bz2 with the one file in it."""
    packed = path.with_name(path.name + ".tar.bz2")
    with tarfile.open(packed, "w:bz2") as archive:
        member = tarfile.TarInfo(path.name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed


@pytest.fixture(params=["plain", "archive"])
def publish(request, tmp_path):
    """Writes a vocabulary file, plain or as an archive."""

    def write(name, text):
        path = tmp_path / name
        if request.param == "archive":
            return archived(path, text.encode())
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_words_keep_the_order_of_the_file_and_stop_at_the_size(publish):
    path = publish("stackoverflow.word_count", WORDS)
    assert list(vocabulary.word_counts(path, 2).items()) == [("the", 900), ("naïve", 40)]
    assert list(vocabulary.word_counts(path, 3)) == ["the", "naïve", "zebra"]


def test_tags_are_sorted_by_count_and_ties_keep_the_order_of_the_file(publish):
    path = publish("stackoverflow.tag_count", json.dumps(TAGS))
    assert list(vocabulary.tag_counts(path, 3).items()) == [("python", 50), ("c", 20), ("jax", 3)]


def test_a_vocabulary_too_short_says_how_many_there_are(publish):
    with pytest.raises(ValueError, match="has only 3 words, not 4: choose at most 3"):
        vocabulary.word_counts(publish("stackoverflow.word_count", WORDS), 4)
    with pytest.raises(ValueError, match="has only 4 tags, not 5"):
        vocabulary.tag_counts(publish("stackoverflow.tag_count", json.dumps(TAGS)), 5)


@pytest.mark.parametrize("read", [vocabulary.word_counts, vocabulary.tag_counts])
def test_a_size_below_one_is_refused(read, publish):
    with pytest.raises(ValueError, match="choose at least 1"):
        read(publish("stackoverflow.word_count", WORDS), 0)


def test_a_malformed_line_is_named(publish):
    with pytest.raises(ValueError, match="line 2 is 'of many', not 'word count'"):
        vocabulary.word_counts(publish("stackoverflow.word_count", "the 9\nof many\n"), 2)


@pytest.mark.parametrize("text", ["{", "[1, 2]", '{"a": "b"}'])
def test_tags_in_another_form_are_refused(publish, text):
    with pytest.raises(ValueError, match=r"is not (a )?JSON"):
        vocabulary.tag_counts(publish("stackoverflow.tag_count", text), 1)


def test_a_truncated_or_wrong_archive_is_refused_in_one_line(tmp_path):
    packed = archived(tmp_path / "stackoverflow.word_count", b"the 900\n" * 5000)
    whole = packed.read_bytes()
    for content in (whole[: len(whole) // 2], b"not an archive", bz2.compress(b"no tar")):
        packed.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or incomplete") as caught:
            vocabulary.word_counts(packed, 2)
        assert "\n" not in str(caught.value)
    other = archived(tmp_path / "readme", b"text").rename(packed)
    with pytest.raises(ValueError, match=r"it contains no stackoverflow\.word_count"):
        vocabulary.word_counts(other, 1)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="word_count does not exist"):
        vocabulary.word_counts(tmp_path / "stackoverflow.word_count", 1)
