import contextlib
import lzma
import sqlite3
import struct

import numpy as np
import pytest
from generated import delimited, encode_example, pack_lzma, stackoverflow_message, varint, write_sqlite
from hypothesis import given
from hypothesis import strategies as st

from fedtrue.data import tff_sqlite, wire

int64s = st.integers(-(2**63), 2**63 - 1)
features = st.dictionaries(
    st.text(max_size=5),
    st.one_of(
        st.lists(st.binary(max_size=300), min_size=1, max_size=4),
        st.lists(int64s, min_size=1, max_size=8),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8),
    ),
    max_size=4,
)


def as_lists(parsed):
    return {name: values if isinstance(values, list) else values.tolist() for name, values in parsed.items()}


@given(features, st.booleans())
def test_what_is_encoded_is_read_back_packed_or_not(example, packed):
    assert as_lists(wire.parse(encode_example(example, packed))) == example


@given(features, st.data())
def test_asking_for_some_features_gives_just_those(example, draw):
    wanted = draw.draw(st.sets(st.sampled_from([*example, "absent"])))
    read = as_lists(wire.parse(encode_example(example), {name.encode() for name in wanted}))
    assert read == {name: values for name, values in example.items() if name in wanted}


@given(features.filter(bool), st.data())
def test_a_truncated_message_is_refused(example, draw):
    message = encode_example(example)
    kept = draw.draw(st.integers(1, len(message) - 1))
    with pytest.raises(ValueError):
        wire.parse(message[:kept])


@given(st.binary(max_size=60))
def test_any_bytes_are_either_read_or_refused(noise):
    for message in (noise, delimited(1, noise), delimited(1, delimited(1, delimited(1, b"x") + delimited(2, noise)))):
        with contextlib.suppress(ValueError):
            wire.parse(message)


def test_unknown_fields_are_skipped():
    unknown = varint(9 << 3 | 0) + varint(300) + delimited(40, b"later") + varint(3 << 3 | 5) + b"four"
    value = delimited(3, delimited(1, varint(7)))
    entry = unknown + delimited(2, unknown + value) + delimited(1, b"label")  # the value may come before its key
    message = unknown + delimited(1, unknown + delimited(1, entry)) + unknown
    assert as_lists(wire.parse(message)) == {"label": [7]}


def test_a_feature_of_no_kind_is_empty():
    assert wire.parse(delimited(1, delimited(1, delimited(1, b"title") + delimited(2, b"")))) == {"title": []}


@pytest.mark.parametrize(
    "message, problem",
    [
        (b"\x0a\x05\x0a", "claims 5 bytes but only 1 are left"),
        (b"\x0a" + b"\xff" * 11, "longer than 64 bits"),
        (b"\x0f\x01", "wire type 7"),
        (delimited(1, delimited(1, delimited(1, b"\xff\xfe"))), "utf-8"),
        (
            delimited(1, delimited(1, delimited(1, b"x") + delimited(2, delimited(2, delimited(1, b"abc"))))),
            "4-byte floats",
        ),
        (
            delimited(1, delimited(1, delimited(1, b"x") + delimited(2, delimited(3, delimited(1, b"\x80"))))),
            "middle of one",
        ),
    ],
)
def test_a_malformed_message_says_what_is_wrong(message, problem):
    with pytest.raises(ValueError, match=problem):
        wire.parse(message)


ROWS = [
    ("train", "u2", stackoverflow_message(b"how do i", score=-3)),
    ("train", "u1", stackoverflow_message(b"what is", score=300)),
    ("test", "u9", stackoverflow_message(b"why")),
    ("train", "u2", stackoverflow_message("naïve".encode(), score=1)),
]


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path / "cache"))
    return write_sqlite(tmp_path / "stackoverflow.sqlite", ROWS)


def train_examples(path):
    return [(c, f["tokens"], int(f["score"][0])) for c, f in tff_sqlite.read(path, "train", ["tokens", "score"])]


TRAIN = [("u2", b"how do i", -3), ("u1", b"what is", 300), ("u2", "naïve".encode(), 1)]


def test_a_split_is_read_in_the_order_of_the_file(database):
    assert train_examples(database) == TRAIN
    assert tff_sqlite.splits(database) == ["test", "train"]


@pytest.mark.parametrize("layout", [lzma.FORMAT_ALONE, lzma.FORMAT_XZ])
def test_a_packed_file_reads_as_the_unpacked_one(database, layout):
    assert train_examples(pack_lzma(database, layout)) == TRAIN


def test_a_packed_file_is_unpacked_once_with_progress(database):
    packed = pack_lzma(database)
    heard = []
    first = tff_sqlite.unpacked(packed, lambda read, total: heard.append((read, total)))
    written = first.stat().st_mtime_ns
    assert heard[-1] == (packed.stat().st_size,) * 2
    assert tff_sqlite.unpacked(packed) == first
    assert first.stat().st_mtime_ns == written
    assert first.read_bytes() == database.read_bytes()


def test_a_packed_file_that_changed_is_unpacked_again(database):
    packed = pack_lzma(database)
    assert train_examples(packed) == TRAIN
    packed.unlink()
    database.unlink()
    pack_lzma(write_sqlite(database, ROWS[1:]))
    assert train_examples(packed) == TRAIN[1:]


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99])
def test_a_truncated_compressed_file_is_refused_and_leaves_nothing_behind(database, kept):
    packed = pack_lzma(database)
    whole = packed.read_bytes()
    packed.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ValueError, match=r"stackoverflow\.sqlite\.lzma is damaged or incomplete .*download it again"):
        train_examples(packed)
    assert list((database.parent / "cache").glob("*")) == [database.parent / "cache" / ".locks"]


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"SQLite format 3", lzma.compress(b"text")])
def test_a_file_that_is_not_a_database_is_refused(database, content):
    for path in (database, database.with_suffix(".lzma")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"stackoverflow\.\w+ is (not an SQLite file|damaged)") as caught:
            train_examples(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0.05, 0.4, 0.8, 0.999])
def test_a_truncated_database_is_refused_and_not_changed(tmp_path, kept):
    rows = [("train", f"u{i % 7}", stackoverflow_message(b"word " * 50)) for i in range(200)]
    path = write_sqlite(tmp_path / "cut.sqlite", rows)
    cut = path.read_bytes()[: int(kept * path.stat().st_size)]
    path.write_bytes(cut)
    with pytest.raises(ValueError, match=r"cut\.sqlite is damaged or incomplete .*nothing was changed"):
        train_examples(path)
    assert path.read_bytes() == cut
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_of_noise_is_refused(tmp_path):
    rows = [("train", f"u{i % 7}", stackoverflow_message(b"word " * 50)) for i in range(200)]
    path = write_sqlite(tmp_path / "noisy.sqlite", rows)
    content = bytearray(path.read_bytes())
    (page_bytes,) = struct.unpack(">H", content[16:18])
    content[page_bytes:] = np.random.default_rng(0).bytes(len(content) - page_bytes)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"noisy\.sqlite is damaged"):
        train_examples(path)


def test_another_database_is_refused_by_its_missing_columns(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE examples (split_name, client_id)")
    connection.close()
    with pytest.raises(ValueError, match=r"other\.sqlite has no examples\(serialized_example_proto\)"):
        tff_sqlite.splits(path)


def test_an_unknown_split_names_the_valid_ones(database):
    with pytest.raises(ValueError, match=r"no split 'trian' \(did you mean 'train'\?\); choose one of: test, train"):
        list(tff_sqlite.read(database, "trian", ["tokens"]))
    with pytest.raises(ValueError, match="no split 'heldout'"):
        list(tff_sqlite.read(database, "heldout", ["tokens"]))


@pytest.mark.parametrize("message", [b"\x0a\x7f", b"\x0a", "text", 7])
def test_a_malformed_message_names_its_client_and_row(tmp_path, message):
    rows = [("train", "u1", stackoverflow_message(b"fine")), ("train", "u2", message)]
    path = write_sqlite(tmp_path / "bad.sqlite", rows)
    with pytest.raises(ValueError, match=r"bad\.sqlite: row 2 of client 'u2' is not a tf\.train\.Example"):
        train_examples(path)


def test_a_missing_feature_names_the_existing_ones(database):
    with pytest.raises(ValueError, match="row 1 of client 'u2' has no body, only creation_date, score, tags"):
        list(tff_sqlite.read(database, "train", ["tokens", "body"]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.sqlite does not exist"):
        tff_sqlite.splits(tmp_path / "gone.sqlite")
