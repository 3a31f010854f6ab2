"""Shared by all tests."""

import gc
import os
from itertools import groupby
from pathlib import Path

import pytest

from tests import compiled_programs


def pytest_addoption(parser):
    parser.addoption("--quick-compilation", action="store_true", help="compile without XLA's optimizer, as `make test`")
    parser.addoption("--cases", type=int, metavar="INT", help="at most this many cases of every parametrized test")


@pytest.hookimpl(trylast=True)  # among the cases that -m and -k leave
def pytest_collection_modifyitems(config, items):
    if most := config.getoption("cases"):
        of_one_test = lambda item: (item.parent.nodeid, getattr(item, "originalname", item.name))
        kept = [item for _, cases in groupby(items, of_one_test) for item in spread(list(cases), most)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def spread(cases, most):
    """At most so many of the cases, at equal distances, the last one always: it is rarely the simplest."""
    if len(cases) <= most:
        return cases
    return [cases[-1 - round(index * (len(cases) - 1) / max(most - 1, 1))] for index in reversed(range(most))]


def pytest_configure(config):
    gc.set_threshold(200_000, 20, 20)  # tracing makes many objects: with Python's own thresholds a tenth more time
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
