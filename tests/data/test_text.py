from hypothesis import given
from hypothesis import strategies as st

from fedtrue.data import text

INDEX = text.index_of(["the", "a", "zebra"])  # ids 1, 2, 3; unknown 4, begin 5, end 6
sentences = st.lists(st.sampled_from([b"the", b"a", b"zebra", b"yak", b""]), max_size=12)


def test_a_short_sentence_gets_an_end_and_padding():
    assert text.encode_sentence([b"a", b"yak"], INDEX, length=4) == [5, 2, 4, 6, 0]


def test_a_sentence_that_fills_the_row_has_no_end():
    assert text.encode_sentence([b"the"] * 4, INDEX, length=4) == [5, 1, 1, 1, 1]
    assert text.encode_sentence([b"the"] * 9, INDEX, length=4) == [5, 1, 1, 1, 1]


def test_ten_thousand_words_give_the_papers_special_ids():
    index = text.index_of([f"w{i}" for i in range(10_000)])
    assert (text.unknown_id(index), text.begin_id(index), text.end_id(index)) == (10_001, 10_002, 10_003)


@given(sentences, st.integers(1, 10))
def test_a_row_begins_then_holds_the_words_then_ends(words, length):
    ids = text.encode_sentence(words, INDEX, length)
    kept = words[:length]
    assert len(ids) == length + 1
    assert ids[0] == text.begin_id(INDEX)
    assert ids[1 : 1 + len(kept)] == [INDEX.get(word, text.unknown_id(INDEX)) for word in kept]
    assert ids[1 + len(kept) :] == ([text.end_id(INDEX)] + [0] * length)[: length - len(kept)]


@given(st.lists(sentences.filter(bool)), st.integers(1, 10))
def test_encoding_many_sentences_equals_encoding_each_alone(many, length):
    rows = text.encode_sentences([b" ".join(words) for words in many], INDEX, length)
    assert rows.shape == (len(many), length + 1)
    assert rows.tolist() == [text.encode_sentence(words, INDEX, length) for words in many]
