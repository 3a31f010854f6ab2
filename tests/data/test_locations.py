"""Laws of finding data files."""

import re
from urllib.parse import urlparse

import pytest

from fedtrue.data import locations


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    folder = tmp_path / "user"
    monkeypatch.delenv("FEDTRUE_DATA", raising=False)
    monkeypatch.setattr(locations, "_user_folder", lambda: folder)
    return folder


def create_file(root, *parts):
    path = root.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_the_environment_variable_comes_before_the_user_folder(tmp_path, user_folder, monkeypatch):
    kept = create_file(user_folder, "mnist", "a.gz")
    assert locations.data_root() == user_folder
    assert locations.find("mnist", "a.gz") == kept
    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path / "mine"))
    assert locations.data_root() == tmp_path / "mine"
    assert locations.find("mnist", "a.gz") == kept
    mine = create_file(tmp_path / "mine", "mnist", "a.gz")
    assert locations.find("mnist", "a.gz") == mine


def test_alternatives_are_found_in_the_order_of_preference(user_folder):
    second = create_file(user_folder, "shakespeare", "b.sqlite")
    assert locations.find("shakespeare", "a.h5", "b.sqlite") == second
    first = create_file(user_folder, "shakespeare", "a.h5")
    assert locations.find("shakespeare", "a.h5", "b.sqlite") == first


def test_the_error_for_missing_data_names_the_files_the_folders_and_the_command(tmp_path, user_folder, monkeypatch):
    monkeypatch.setenv("FEDTRUE_DATA", str(tmp_path / "mine"))
    with pytest.raises(locations.MissingData) as failure:
        locations.find("shakespeare", "shakespeare_train.h5", "shakespeare.sqlite")
    assert str(failure.value) == (
        f"shakespeare_train.h5 or shakespeare.sqlite is not in {tmp_path / 'mine' / 'shakespeare'} nor in "
        f"{user_folder / 'shakespeare'}: run 'fedtrue data get shakespeare' (1.33 MB) or set FEDTRUE_DATA to the "
        "folder that contains shakespeare/"
    )
    assert isinstance(failure.value, ValueError) and isinstance(failure.value, FileNotFoundError)


def test_the_error_for_an_unpublished_data_set_names_no_download(user_folder):
    with pytest.raises(locations.MissingData, match=r"x.json is not in .*own: copy it there or set FEDTRUE_DATA"):
        locations.find("own", "x.json")


def test_without_platformdirs_the_user_folder_is_below_home(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "platformdirs", None)
    monkeypatch.delenv("FEDTRUE_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locations.data_root() == tmp_path / ".cache" / "fedtrue"


@pytest.mark.parametrize("name", locations.PUBLISHED)
def test_every_published_file_is_fully_described(name):
    data_set = locations.PUBLISHED[name]
    assert data_set.licence and data_set.description and data_set.files
    for file in data_set.files:
        assert file.urls or name == "plays"  # by pip
        assert all(urlparse(url).scheme == "https" and url.endswith("/" + file.name) for url in file.urls)
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(None, "size unknown"), (999, "999 B"), (1_329_828, "1.33 MB"), (9_076_663_578, "9.08 GB")]
)
def test_sizes_are_rounded_to_three_digits_with_a_unit(size_bytes, text):
    assert locations.size_text(size_bytes) == text
