"""The cache of compiled programs is whole, is found by processes, and hides no compilation from those who count."""

import os

import jax
import pytest
from jax._src.lru_cache import LRUCache

from tests import compiled_programs


def test_a_program_found_in_the_cache_counts_as_compiled():
    first, second = (jax.jit(lambda x: 3 * x + 1) for _ in range(2))
    for program in (first, second):  # the second finds what the first has written
        program(1.0)
        assert program._cache_size() == 1


def test_an_entry_is_found_by_jax_and_nothing_else_is_left(tmp_path):
    cache = LRUCache(str(tmp_path), max_size=-1)
    cache.put("key", b"program")
    assert cache.get("key") == b"program"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_write_leaves_no_entry(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupted)
    cache = LRUCache(str(tmp_path), max_size=-1)
    with pytest.raises(KeyboardInterrupt):
        cache.put("key", b"program")
    assert cache.get("key") is None


def test_processes_use_the_same_cache():
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == jax.config.jax_compilation_cache_dir


def test_a_cache_that_has_grown_too_large_is_emptied(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_programs, "ROOT", tmp_path / "compiled")
    monkeypatch.setattr(compiled_programs, "MAX_BYTES", 10)
    entry = tmp_path / "compiled" / "cpu" / "key-cache"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(bytes(10))
    compiled_programs.keep_small()
    assert entry.exists()
    entry.write_bytes(bytes(11))
    compiled_programs.keep_small()
    assert not entry.exists()
