"""Small data in the published layouts, in place of the real one."""

import pytest
from small_files import write_all

from fedtrue.data import locations


@pytest.fixture(scope="session")
def small_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_all(root)
    return root


@pytest.fixture
def empty_data(tmp_path, monkeypatch):
    """An empty data folder, and a new cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FEDTRUE_DATA", str(folder))
    monkeypatch.setenv("FEDTRUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locations, "_user_folder", lambda: tmp_path / "user")
    return folder


@pytest.fixture
def small_data(small_root, monkeypatch):
    """Small files of every data set, with a few clients each."""
    monkeypatch.setenv("FEDTRUE_DATA", str(small_root))
    monkeypatch.setenv("FEDTRUE_CACHE", str(small_root.parent / "cache"))
    monkeypatch.setattr(locations, "_user_folder", lambda: small_root / "user")
    return small_root
