"""Laws of next-token prediction: which targets count, and the rows of the Shakespeare task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_files import layouts, write_hdf5

from fedtrue.data.client_data import ClientData
from fedtrue.data.locations import MissingData
from fedtrue.models.model import Model
from fedtrue.tasks import shakespeare as task_factory
from fedtrue.tasks.next_token import next_token_loss, next_token_metrics, next_word_task
from fedtrue.tasks.shakespeare import BEGIN, CHARACTERS, END, UNKNOWN, _train_or_test_speeches, decode, encode

PAD, A, B, OOV, BOS, EOS = range(6)  # two words
GUESS = Model(lambda key: {}, lambda params, inputs: 10.0 * (jnp.arange(6) == params["guesses"][..., None]))
TOKENS = np.array([[BOS, A, OOV, B, EOS], [BOS, B, EOS, PAD, PAD]], np.uint8)
GUESSES = np.array([[A, OOV, A, EOS], [A, EOS, A, A]])  # right, right, wrong, right; wrong, right, padding


def batch(mask=(1.0, 1.0)):
    return {"tokens": jnp.asarray(TOKENS), "mask": jnp.asarray(mask)}


def accuracies(mask=(1.0, 1.0)):
    metrics = next_token_metrics(GUESS, {
        "accuracy": (OOV, BOS, EOS), "accuracy_with_eos": (OOV, BOS), "accuracy_with_eos_and_oov": (BOS,)
    })  # fmt: skip
    sums = metrics({"guesses": jnp.asarray(GUESSES)}, batch(mask))
    return {name: (float(total), float(count)) for name, (total, count) in sums.items()}


def test_the_three_accuracies_count_the_right_targets():
    sums = accuracies()
    assert sums["accuracy"] == (1, 3)  # targets that are words: a right, b wrong, b wrong
    assert sums["accuracy_with_eos"] == (3, 5)  # and both ends, right
    assert sums["accuracy_with_eos_and_oov"] == (4, 6)  # and the unknown word, right
    assert sums["loss"][1] == 6  # every target but the two padding tokens


def test_a_masked_example_does_not_count():
    assert accuracies(mask=(1.0, 0.0))["accuracy"] == (1, 2)  # a right, b wrong


def test_the_loss_is_the_mean_over_targets_without_padding():
    loss, sums = next_token_loss(GUESS)({"guesses": jnp.asarray(GUESSES)}, batch())
    right, wrong = np.log(1 + 5 * np.exp(-10)), np.log(np.exp(10) + 5)  # −log softmax of the logits 10, 0, 0, 0, 0, 0
    assert float(loss) == pytest.approx((4 * right + 2 * wrong) / 6, rel=1e-5)
    assert float(sums["loss"][0]) == pytest.approx(4 * right + 2 * wrong, rel=1e-5)


def test_the_word_tasks_know_which_ids_are_unknown_begin_and_end():
    task = next_word_task(
        name="words", words=["a", "b"], train=ClientData.from_clients([{"tokens": TOKENS}]),
        embedding=2, hidden=2, projection=2, dtype=jnp.float32,
    )  # fmt: skip
    assert task.render({"tokens": TOKENS[0]}) == "<bos> a <oov> b <eos>"
    assert list(task.client_weights("tokens")) == [6]  # 4 + 2 targets without_validation padding
    counts = task.metrics(task.init(jax.random.key(0)), batch())
    assert {name: float(count) for name, (_, count) in counts.items()} == {
        "loss": 6, "accuracy": 3, "accuracy_with_eos": 5, "accuracy_with_eos_and_oov": 6
    }  # fmt: skip


# --- Shakespeare ------------------------------------------------------------------------------------------------------


def test_character_ids_are_those_of_the_reference():
    assert (len(CHARACTERS), len(set(CHARACTERS))) == (86, 86)
    assert (UNKNOWN, BEGIN, END) == (87, 88, 89)
    assert encode("dé")[0, :5].tolist() == [BEGIN, 1, UNKNOWN, END, 0]


@pytest.mark.parametrize("characters, rows", [(0, 1), (79, 1), (80, 2), (160, 2), (161, 3)])  # + begin and end, / 81
def test_a_snippet_is_cut_into_rows_of_81_and_only_the_last_row_is_padded(characters, rows):
    encoded = encode("a" * characters)
    assert encoded.shape == (rows, 81) and encoded.dtype == np.uint8
    flat = encoded.reshape(-1)
    assert (flat[: characters + 2] > 0).all() and (flat[characters + 2 :] == 0).all()
    assert "".join(decode(row) for row in encoded) == "a" * characters


def test_the_last_fifth_of_a_roles_speeches_and_at_least_one_is_for_testing():
    spoken = [("A", {"snippets": str(n)}) for n in range(10)] + [("B", {"snippets": "x"}), ("B", {"snippets": "y"})]
    assert list(_train_or_test_speeches(spoken, test=True)) == [("A", "8"), ("A", "9"), ("B", "y")]
    assert list(_train_or_test_speeches(spoken, test=False)) == [*(("A", str(n)) for n in range(8)), ("B", "x")]


def test_without_the_papers_file_the_plays_are_used_and_the_source_says_so(empty_data):
    texts = empty_data / "plays" / "texts"
    texts.mkdir(parents=True)
    lines = "".join(f"HAMLET.\nLine {n}.\n\nOPHELIA.\nMy lord {n}.\n\n" for n in range(6))
    (texts / "hamlet_gut.txt").write_text(f"ACT I.\n\nSCENE I. Elsinore.\n\n{lines}")
    task = task_factory(embedding=2, hidden=2)
    assert "plays" in task.source
    assert (len(task.train), task.train.examples, task.test.examples) == (
        2,
        10,
        2,
    )  # 5 train speeches and 1 test speech per role


def test_without_any_file_the_error_names_the_command(empty_data):
    with pytest.raises(MissingData, match="fedtrue data get plays"):
        task_factory()


def test_a_train_file_without_its_test_file_is_an_error_and_the_plays_are_not_used(empty_data):
    (empty_data / "shakespeare").mkdir()
    write_hdf5(empty_data / "shakespeare" / "shakespeare_train.h5", {"A": {"snippets": [b"Ay."]}})
    with pytest.raises(MissingData, match=r"shakespeare_test\.h5"):
        task_factory()


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_a_validation_fraction_outside_zero_to_one_is_refused(fraction, small_data):
    with pytest.raises(ValueError, match=f"validation is {fraction}: choose"):
        task_factory(validation=fraction)


def test_validation_is_the_end_of_every_roles_train_sequences(small_data):
    without_validation, with_validation = task_factory(), task_factory(validation=0.25)
    assert without_validation.validation is None
    assert with_validation.train.examples + with_validation.validation.examples == without_validation.train.examples
    kept = dict(zip(with_validation.train.client_ids, with_validation.train.sizes))
    for name, start, size in zip(
        with_validation.validation.client_ids, with_validation.validation.starts, with_validation.validation.sizes
    ):
        index = list(without_validation.train.client_ids).index(name)
        assert start == without_validation.train.starts[index] + kept[name]
        assert size + kept[name] == without_validation.train.sizes[index]


@pytest.mark.data
def test_the_papers_file_has_715_roles_and_37784_sequences(monkeypatch, tmp_path):
    layouts.real_file("shakespeare", "shakespeare_train.h5")
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path))
    task = task_factory()
    assert (len(task.train), task.train.examples) == (715, 37_784)
    assert (len(task.test), task.test.examples) == (715, 5_490)
    begins = [int((data.columns["tokens"][:, 0] == BEGIN).sum()) for data in (task.train, task.test)]
    assert begins == [16_068, 2_356]  # one per snippet
