"""Laws of tag prediction on numbers computed by hand, and of Stack Overflow's files."""

import jax.numpy as jnp
import numpy as np
import pytest
from small_files import stackoverflow, stackoverflow_message, write_sqlite

import fedtrue as ft
from fedtrue.data.locations import MissingData
from fedtrue.models import Model, word_regression
from fedtrue.tasks.tag_prediction import tag_loss, tag_metrics

WORDS, TAGS = 3, 8
FIXED = Model(lambda key: {}, lambda params, word_ids: params["logits"])


def ragged(*rows):
    width = max(map(len, rows))
    values = np.array([[*row, *[0] * (width - len(row))] for row in rows], np.uint16)
    return {"values": jnp.asarray(values), "mask": jnp.asarray([[n < len(row) for n in range(width)] for row in rows])}


BATCH = {
    "words": ragged([0, 0, 2], [1], []),
    "tags": ragged([0, 7], [2, 2], []),  # a repeated tag counts once; the last text has none
    "mask": jnp.array([1.0, 1.0, 1.0]),
}
LOGITS = jnp.array([[9.0, 8, 7, 6, 5, 4, 3, 2], [1, 2, 3, 4, 5, 6, 7, 8], [0] * 8])  # most likely: 0–4 and 7–3


def test_recall_at_5_is_the_fraction_of_all_true_tags_among_the_five_most_likely():
    metrics = tag_metrics(FIXED, TAGS)
    found, true = metrics({"logits": LOGITS}, BATCH)["recall_at_5"]
    assert (float(found), float(true)) == (1, 3)  # of tags {0, 7} 0 is found, of {2} none
    found, true = metrics({"logits": LOGITS}, {**BATCH, "mask": jnp.array([0.0, 1, 1])})["recall_at_5"]
    assert (float(found), float(true)) == (0, 1)


def test_the_loss_is_averaged_over_tags_and_summed_over_the_batch():
    loss, sums = tag_loss(FIXED, TAGS)({"logits": jnp.zeros((3, TAGS))}, BATCH)
    assert float(loss) == pytest.approx(3 * np.log(2))  # −log ½ for each tag of each of 3 texts
    assert float(sums["loss"][1]) == 3
    one, _ = tag_loss(FIXED, TAGS)({"logits": 100.0 * jnp.eye(3, TAGS)}, {**BATCH, "mask": jnp.array([1.0, 0, 0])})
    assert float(one) == pytest.approx(7 / 8 * np.log(2), rel=1e-6)  # tag 0 certain and true, seven at ½


def test_words_are_counted_and_divided_by_their_number():
    model, weights = word_regression(WORDS, TAGS), {"kernel": jnp.eye(WORDS, TAGS), "bias": jnp.zeros(TAGS)}
    shares = [[2 / 3, 0, 1 / 3], [0, 1, 0], [0, 0, 0]]  # text 0 is ⅔ of word 0 and ⅓ of word 2; text 2 has none
    fixed = {"logits": jnp.pad(jnp.array(shares), [(0, 0), (0, TAGS - WORDS)])}
    by_words, by_hand = tag_loss(model, TAGS)(weights, BATCH)[0], tag_loss(FIXED, TAGS)(fixed, BATCH)[0]
    assert float(by_words) == pytest.approx(float(by_hand), rel=1e-6)


def stack_overflow(folder, posts, words="the 9\nis 8\n", tags='{"jax": 9, "python": 8}'):
    """Stack Overflow's three files; `posts` are (split, client, tokens, tags)."""
    folder.mkdir()
    rows = [(split, client, stackoverflow_message(tokens, tags=tags)) for split, client, tokens, tags in posts]
    write_sqlite(folder / "stackoverflow.sqlite", rows)
    (folder / "stackoverflow.word_count").write_text(words)
    (folder / "stackoverflow.tag_count").write_text(tags)


POSTS = [("train", "a", b"the the is rare", b"python|rare"), ("train", "a", b"is", b"jax|python"),
         ("heldout", "b", b"the", b"rare"), ("test", "c", b"is", b"jax")]  # fmt: skip


def test_unknown_words_and_tags_are_dropped_and_the_title_counts(empty_data):
    stack_overflow(empty_data / "stackoverflow", POSTS, words="the 9\nis 8\nclients 7\n")
    task = ft.tasks.stackoverflow_tags(words=3, tags=2)
    client = task.train.client(0)
    assert [row.tolist() for row in client["words"]] == [[0, 0, 1, 2], [1, 2]]  # the title is "… what clients send"
    assert [row.tolist() for row in client["tags"]] == [[1], [0, 1]]
    assert task.validation.client(0)["tags"][0].tolist() == []
    assert task.render({"words": [0, 2], "tags": [1]}) == "the clients [python]"


def test_only_the_first_examples_of_train_clients_are_kept(empty_data):
    stack_overflow(empty_data / "stackoverflow", POSTS)
    tags = ft.tasks.stackoverflow_tags(words=2, tags=2, examples_per_client=1)
    words = ft.tasks.stackoverflow_words(vocabulary=2, length=3, examples_per_client=1, embedding=2, hidden=2)
    assert tags.train.examples == words.train.examples == 1
    assert words.train.client(0)["tokens"].tolist() == [[4, 1, 1, 2]]  # begin, the, the, is; cut: no end
    assert words.test.client(0)["tokens"].tolist() == [[4, 2, 5, 0]]


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: ft.tasks.stackoverflow_words(vocabulary=41), "has only 40 words, not 41"),
        (lambda: ft.tasks.stackoverflow_tags(words=30, tags=9), "has only 8 tags, not 9"),
        (lambda: ft.tasks.stackoverflow_words(vocabulary=0), "at least 1"),
        (lambda: ft.tasks.stackoverflow_words(vocabulary=9, examples_per_client=0), "examples_per_client is 0"),
        (lambda: ft.tasks.synthetic_tags(tags=0), "tags is 0: choose at least 1"),
        (lambda: ft.tasks.synthetic_words(clients=0), "clients is 0: choose at least 1"),
    ],
)
def test_a_vocabulary_that_is_too_small_and_invalid_sizes_are_refused_in_one_line(make, said, small_data):
    with pytest.raises(ValueError, match=said) as failure:
        make()
    assert "\n" not in str(failure.value)


def test_a_missing_vocabulary_names_its_file(empty_data):
    (empty_data / "stackoverflow").mkdir()
    stackoverflow(empty_data / "stackoverflow")
    (empty_data / "stackoverflow" / "stackoverflow.tag_count").unlink()
    with pytest.raises(MissingData, match=r"stackoverflow\.tag_count or .*fedtrue data get stackoverflow"):
        ft.tasks.stackoverflow_tags(words=9, tags=2)


# --- synthetic tasks --------------------------------------------------------------------------------------------------


def test_synthetic_words_are_zipf_distributed_and_clients_differ_in_their_topics():
    task = ft.tasks.synthetic_words(clients=300, vocabulary=1000, topics=10, embedding=2, hidden=2, projection=2)
    tokens = np.asarray(task.train.columns["tokens"])[:, 1:]
    words = tokens[(tokens >= 1) & (tokens <= 1000)].astype(int) - 1
    assert tokens.max() == 1003 and tokens.shape[1] == 20
    counts = np.sort(np.bincount(words, minlength=1000))[::-1]
    slope = np.polyfit(np.log(np.arange(10, 500)), np.log(counts[9:499]), 1)[0]
    assert -1.3 < slope < -0.6  # Zipf's law: frequency ∝ rank^−1
    topics = np.array([np.bincount(rows[(rows >= 1) & (rows <= 1000)].astype(int) % 10, minlength=10) for rows in
                       (task.train.client(c)["tokens"][:, 1:] for c in range(50))])  # fmt: skip
    shares = topics / topics.sum(axis=1, keepdims=True)
    assert shares.max(axis=1).mean() > 1.5 * shares.mean(axis=0).max()


def test_synthetic_data_is_determined_by_its_seed():
    make = lambda seed: ft.tasks.synthetic_tags(clients=3, words=50, tags=8, examples_per_client=5, seed=seed)
    values = [make(seed).train.columns["words"].values for seed in (1, 1, 2)]
    np.testing.assert_array_equal(values[0], values[1])
    assert values[0].shape != values[2].shape or (values[0] != values[2]).any()


def test_synthetic_tags_are_distinct_and_in_range():
    tags = ft.tasks.synthetic_tags(clients=20, words=50, tags=8, topics=2, examples_per_client=50).train.columns["tags"]
    for row in range(len(tags)):
        assert 1 <= len(tags[row]) == len(set(tags[row].tolist())) <= 5
    assert tags.values.max() < 8
