"""Shared by the tests of run folders."""

import os

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """A program that several runs or processes of a module share is compiled once and without much ado.

    Compiling is nearly all of their time, and what it gains in speed nobody here needs.
    """
    options = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_disable_most_optimizations": True,
    }
    before = {name: jax.config.values[name] for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # for processes
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
        del os.environ[name.upper()]
    compilation_cache.reset_cache()
