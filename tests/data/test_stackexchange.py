"""Laws of the Stack Exchange source."""

import sys
import tracemalloc
from pathlib import Path
from xml.sax.saxutils import quoteattr

import layouts
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.data import stackexchange

PLAIN_WORDS = st.lists(st.text("abcdefgh<>&\"'é", min_size=1, max_size=8), min_size=1, max_size=5)


def posts_xml(rows: list[dict[str, str]]) -> bytes:
    lines = ['\ufeff<?xml version="1.0" encoding="utf-8"?>', "<posts>"]
    lines += ["  <row " + " ".join(f"{key}={quoteattr(value)}" for key, value in row.items()) + " />" for row in rows]
    return "\n".join([*lines, "</posts>"]).encode()


QUESTION = {
    "Id": "1",
    "PostTypeId": "1",
    "CreationDate": "2014-01-21T20:26:05.383",
    "Score": "19",
    "Body": "<p>What are <b>citra</b> hops &amp; why?</p>\n<pre><code>brew(1)</code></pre>",
    "OwnerUserId": "7",
    "Title": "Citra & co",
    "Tags": "<hops><craft-beer>",
}
ANSWER = {"Id": "2", "PostTypeId": "2", "Score": "-3", "Body": "<p>See <code>man</code>.</p>", "OwnerUserId": "8"}
ORPHAN = {"Id": "3", "PostTypeId": "2", "Score": "0", "Body": "<p>gone</p>"}
TAG_WIKI = {"Id": "4", "PostTypeId": "5", "Score": "0", "Body": "", "OwnerUserId": "-1"}


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
def test_every_compression_gives_the_same_posts(tmp_path, suffix):
    path = layouts.write(tmp_path / f"Posts.xml{suffix}", posts_xml([QUESTION, ANSWER]))
    (asker, question), (answerer, answer) = stackexchange.read(path)
    assert (asker, answerer) == ("7", "8")
    assert question == {
        "kind": "question",
        "title": "Citra & co",
        "text": "What are citra hops & why?",
        "tags": ["hops", "craft-beer"],
        "score": 19,
        "created": "2014-01-21T20:26:05.383",
    }
    assert (answer["kind"], answer["text"], answer["tags"], answer["score"]) == ("answer", "See man.", [], -3)


def test_rows_without_owner_and_of_other_kinds_are_skipped_and_counted(tmp_path):
    path = layouts.write(tmp_path / "Posts.xml", posts_xml([QUESTION, ORPHAN, TAG_WIKI, ANSWER]))
    counts = stackexchange.Counts()
    assert [user for user, _ in stackexchange.read(path, counts)] == ["7", "8"]
    assert counts == stackexchange.Counts(rows=4, yielded=2, without_owner=1, other_kinds=1)


@given(st.lists(st.text("abc-#.+1", min_size=1, max_size=6)))
def test_both_notations_of_tags_give_the_same_tags(tags):
    angles = "".join(f"<{tag}>" for tag in tags)
    bars = "|" + "|".join(tags) + "|" if tags else ""
    assert stackexchange.tag_names(angles) == stackexchange.tag_names(bars) == tags


@given(PLAIN_WORDS, st.sampled_from(["p", "li", "blockquote", "h2"]))
def test_words_survive_markup_and_escaping(words, block):
    escaped = [word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for word in words]
    body = "".join(
        f"<{block}><em>{word[:1]}</em>{word[1:]}</{block}>" if "&" not in word else f"<{block}>{word}</{block}>"
        for word in escaped
    )
    assert stackexchange.plain_text(body) == " ".join(words)


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak_bytes(row_count: int) -> int:
        path = layouts.write(tmp_path / f"{row_count}.xml", posts_xml([{**ANSWER, "Body": "x" * 1000}] * row_count))
        tracemalloc.start()
        assert sum(1 for _ in stackexchange.read(path)) == row_count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4000) < 1.5 * peak_bytes(400)


@pytest.mark.parametrize("suffix", layouts.COMPRESSIONS)
@pytest.mark.parametrize("damage", [layouts.truncate, layouts.overwrite])
def test_a_damaged_file_is_named_in_one_line(tmp_path, suffix, damage):
    rows = [{**QUESTION, "Title": f"{i} {i * 2_654_435_761 % 2**32}"} for i in range(200)]
    path = damage(layouts.write(tmp_path / f"Posts.xml{suffix}", posts_xml(rows)))
    with pytest.raises(ValueError, match=r"Posts\.xml.* damaged .*download it again; nothing was changed") as failure:
        list(stackexchange.read(path))
    assert "\n" not in str(failure.value)


def test_another_table_of_the_dump_is_refused(tmp_path):
    path = layouts.write(tmp_path / "Users.xml", b"<users><row Id='1'/></users>")
    with pytest.raises(ValueError, match=r"Users.xml contains <users>, not <posts>: give the dump's Posts.xml"):
        list(stackexchange.read(path))


def test_a_missing_file_is_named():
    with pytest.raises(ValueError, match=r"nowhere/Posts.xml is not a file: check the path"):
        list(stackexchange.read("nowhere/Posts.xml"))


def test_a_7z_archive_without_py7zr_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "py7zr", None)
    path = layouts.write(tmp_path / "beer.7z", b"7z\xbc\xaf\x27\x1c rest")
    with pytest.raises(ValueError, match=r"beer.7z is a 7z archive: run 'pip install py7zr', or unpack it"):
        list(stackexchange.read(path))


def test_a_7z_archive_gives_the_same_posts(tmp_path):
    py7zr = pytest.importorskip("py7zr")
    plain = layouts.write(tmp_path / "Posts.xml", posts_xml([QUESTION, ANSWER]))
    with py7zr.SevenZipFile(tmp_path / "beer.7z", "w") as archive:
        archive.write(plain, "Posts.xml")
    assert list(stackexchange.read(tmp_path / "beer.7z")) == list(stackexchange.read(plain))
    with pytest.raises(ValueError, match=r"beer.7z is damaged"):
        list(stackexchange.read(layouts.truncate(tmp_path / "beer.7z")))


@pytest.mark.data
@pytest.mark.parametrize(
    ("site", "rows", "users"),
    [
        ("beer", 3471, 1143),
        ("ai", 1735, 528),
        ("quantumcomputing", 1986, 334),
        ("matheducators", 2061, 361),
        ("coffee", 592, 116),
        ("stackoverflow-sample", 620, 169),
    ],
)
def test_real_sites_have_their_published_counts(site, rows, users):
    path: Path = layouts.real_file("stackexchange", f"{site}.Posts.xml.xz")
    counts = stackexchange.Counts()
    posts = list(stackexchange.read(path, counts, kinds=set(stackexchange.KINDS.values())))
    assert (counts.rows, len({user for user, _ in posts})) == (rows, users)
    assert counts.rows == counts.yielded + counts.without_owner
    conversation = stackexchange.Counts()
    assert all(post["text"] or post["title"] for _, post in stackexchange.read(path, conversation) if post["tags"])
    assert 0 < conversation.yielded <= counts.yielded
