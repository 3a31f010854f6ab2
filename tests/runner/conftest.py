"""Shared by the tests of run folders."""

import os

import jax
import pytest

SETTING = "jax_disable_most_optimizations"


@pytest.fixture(scope="module")
def quick_compilation():
    """Fast compilation, here and in child processes: it takes most of the time of these tests."""
    before = jax.config.values[SETTING], os.environ.get(SETTING.upper())
    jax.config.update(SETTING, True)
    os.environ[SETTING.upper()] = "1"
    yield
    jax.config.update(SETTING, before[0])
    if before[1] is None:
        del os.environ[SETTING.upper()]
    else:
        os.environ[SETTING.upper()] = before[1]
