"""Shared by all tests."""

import os
from pathlib import Path

import pytest

from tests import compiled_programs


def pytest_addoption(parser):
    parser.addoption("--quick-compilation", action="store_true", help="compile without XLA's optimizer, as `make test`")


def pytest_configure(config):
    if config.getoption("quick_compilation"):
        compiled_programs.compile_quickly()
    if not hasattr(config, "workerinput"):  # once per run, not once per worker
        compiled_programs.keep_small()
    compiled_programs.share()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data files; a test that needs one asks for it and skips without."""
    folder = os.environ.get("FEDTRUE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDTRUE_DATA is not set to a folder of real data")
    return Path(folder)
