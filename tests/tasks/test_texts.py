"""Laws of the tasks on posts and descriptions: words, vocabularies and splits."""

import numpy as np
import pytest
from small_files import debian, layouts, stackexchange

import fedtrue as ft
from fedtrue.data.locations import MissingData
from fedtrue.data.text import sentences_of, words_of
from fedtrue.tasks.texts import SplitFractions

TINY = {"embedding": 2, "hidden": 2, "projection": 2}


def test_words_are_lower_case_without_punctuation():
    assert words_of("Don't use C++ (v1.5), use C#!") == ["don't", "use", "c++", "v1.5", "use", "c#"]


def test_sentences_are_the_title_and_the_texts_own_without_empty_ones():
    post = {"title": "Why?", "text": "It is so. Is it? ... Yes"}
    assert list(sentences_of(post)) == [["why"], ["it", "is", "so"], ["is", "it"], ["yes"]]


def test_a_clients_split_depends_on_its_name_and_the_seed_alone():
    fractions = SplitFractions(validation=0.1, test=0.2, seed=0)
    splits = [fractions.split_of(str(client)) for client in range(4000)]
    assert splits == [fractions.split_of(str(client)) for client in range(4000)]
    shares = [splits.count(split) / 4000 for split in ("train", "validation", "test")]
    np.testing.assert_allclose(shares, [0.7, 0.1, 0.2], atol=0.03)  # 4 standard deviations of 4,000 draws
    assert splits != [SplitFractions(0.1, 0.2, seed=1).split_of(str(client)) for client in range(4000)]


@pytest.mark.parametrize("fractions", [{"validation": -0.1}, {"test": 0.0}, {"validation": 0.5, "test": 0.5}])
def test_fractions_that_leave_no_train_or_test_users_are_refused(fractions, small_data):
    with pytest.raises(ValueError, match="with a sum below 1"):
        ft.tasks.stackexchange(**fractions)


def test_the_vocabulary_comes_from_train_users_only_and_the_source_reports_a_shortfall(empty_data):
    (empty_data / "stackexchange").mkdir()
    stackexchange(empty_data / "stackexchange")
    path = empty_data / "stackexchange" / "beer.Posts.xml"
    tester = next(str(user) for user in range(30) if SplitFractions(0.1, 0.1, 0).split_of(str(user)) == "test")
    of_tester = lambda row: row.replace("yeast", "tested") if f'OwnerUserId="{tester}"' in row else row
    path.write_text("\n".join(of_tester(row) for row in path.read_text().splitlines()))
    task = ft.tasks.stackexchange(**TINY)
    assert "of the 10,000 requested words" in task.source
    test_texts = [task.render({"tokens": row}) for c in range(len(task.test)) for row in task.test.client(c)["tokens"]]
    assert any("<oov>" in text for text in test_texts)


def test_another_size_is_converted_separately_and_the_same_size_only_once(empty_data, monkeypatch):
    (empty_data / "stackexchange").mkdir()
    stackexchange(empty_data / "stackexchange")
    first = ft.tasks.stackexchange(kind="tags", tags=2)
    assert ft.tasks.stackexchange(kind="tags", tags=3).train.columns["tags"].values.max() == 2
    assert first.train.columns["tags"].values.max() == 1
    from fedtrue.data import stackexchange as dump

    monkeypatch.setattr(dump, "_rows", lambda path: pytest.fail("the file was read again"))
    np.testing.assert_array_equal(ft.tasks.stackexchange(kind="tags", tags=2).train.sizes, first.train.sizes)


def test_the_error_for_a_site_without_file_names_the_files(empty_data):
    with pytest.raises(MissingData, match=r"chess\.Posts\.xml or .*chess\.stackexchange\.com\.7z"):
        ft.tasks.stackexchange(site="chess")


def test_any_dump_file_may_be_given_by_its_path(empty_data, tmp_path):
    stackexchange(tmp_path)
    named = (tmp_path / "beer.Posts.xml").rename(tmp_path / "mine.xml")
    task = ft.tasks.stackexchange(path=named, kind="tags")
    assert "mine.xml" in task.source


def test_too_few_users_for_a_split_are_an_error(empty_data, tmp_path):
    stackexchange(tmp_path, users=2)
    with pytest.raises(ValueError, match=r"beer\.Posts\.xml has 2 clients, none of them in (train|test|valid)"):
        ft.tasks.stackexchange(path=tmp_path / "beer.Posts.xml", **TINY)


def test_a_wrong_kind_is_refused_with_a_suggestion(small_data):
    with pytest.raises(ValueError, match="did you mean 'tags'"):
        ft.tasks.stackexchange(kind="tag")


def test_texts_without_a_known_tag_are_skipped_and_long_ones_truncated(empty_data):
    (empty_data / "debian").mkdir()
    debian(empty_data / "debian")
    task = ft.tasks.descriptions(longest=2)
    everyone = [name for data in (task.train, task.validation, task.test) for name in data.client_ids]
    assert "untagged" not in everyone and len(everyone) == 30
    assert task.train.columns["words"].width == 2


def test_texts_without_any_tag_are_refused(empty_data, tmp_path):
    path = tmp_path / "plain.jsonl"
    path.write_text('{"client": "a", "text": "no tags"}\n')
    with pytest.raises(ValueError, match=r"plain\.jsonl has no tags"):
        ft.tasks.descriptions(path=path)


@pytest.mark.data
def test_a_real_site_has_its_published_number_of_users(monkeypatch, tmp_path):
    layouts.real_file("stackexchange", "coffee.Posts.xml.xz")
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path))
    task = ft.tasks.stackexchange(site="coffee")
    assert (
        sum(len(data) for data in (task.train, task.validation, task.test)) == 115
    )  # the 116th user wrote tag wikis only
