"""Shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data files; a test that needs one asks for it and skips without."""
    folder = os.environ.get("FEDTRUE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDTRUE_DATA is not set to a folder of real data")
    return Path(folder)
