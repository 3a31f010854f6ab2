"""Files are on the disk when the call returns, on platforms that cannot open folders too."""

import os

import pytest

from fedtrue.files import sync, write_atomically


@pytest.fixture
def folders_cannot_be_opened(monkeypatch):
    """As on Windows: os.open refuses a folder, and fsync a descriptor that was opened for reading only."""
    opened, synced = os.open, os.fsync
    access = {}

    def open_file(path, flags, *more):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        descriptor = opened(path, flags, *more)
        access[descriptor] = flags
        return descriptor

    def fsync(descriptor):
        if access.get(descriptor, os.O_RDWR) & (os.O_RDWR | os.O_WRONLY) == 0:
            raise OSError(9, "Bad file descriptor")
        synced(descriptor)

    monkeypatch.delattr(os, "O_DIRECTORY")
    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.usefixtures("folders_cannot_be_opened")
def test_a_file_is_written_where_folders_cannot_be_opened(tmp_path):
    write_atomically(tmp_path / "file", b"some bytes")
    sync(tmp_path / "file")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"some bytes")]


def test_a_folder_is_synced_where_it_can_be_opened(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync(tmp_path)
    assert synced == [tmp_path.stat().st_ino]
