"""A program of ours is like one of `jax.jit`, and changes nothing for any other program."""

import warnings

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from fedtrue.lowering import Program, program
from tests.lowering.test_rules import network, normal


@pytest.fixture
def rules_are_read_again():
    program.overrides.cache_clear()
    yield
    program.overrides.cache_clear()


def test_other_programs_are_lowered_as_before():
    arrays = normal(0, (2, 8, 8, 2)), normal(1, (3, 3, 2, 4))
    before = jax.jit(network).lower(*arrays).as_text()
    Program(network)(*arrays)
    assert jax.jit(network).lower(*arrays).as_text() == before
    assert Program(network).lower(*arrays).as_text() != before


def test_arguments_of_other_shapes_are_compiled_anew():
    double = Program(lambda x: 2 * x)
    assert double(jnp.ones(2)).tolist() == [2, 2]
    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert double(jnp.ones(3, jnp.int32)).tolist() == [2, 2, 2]


def test_donated_arguments_are_given_away():
    x = jnp.ones(1000)
    Program(lambda x: x + 1, donate_argnums=(0,))(x)
    assert x.is_deleted()


def test_without_the_private_names_jax_lowers_and_a_warning_says_so(monkeypatch, rules_are_read_again):
    monkeypatch.setattr(program, "unavailable", lambda: "JAX 99 lowers programs in another way")
    arrays = normal(0, (2, 8, 8, 2)), normal(1, (3, 3, 2, 4))
    with pytest.warns(UserWarning, match="lowering rules are off: JAX 99"):
        text = Program(network).lower(*arrays).as_text()
    assert text == jax.jit(network).lower(*arrays).as_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        Program(network).lower(*arrays)


def test_the_guard_sees_a_version_of_jax_with_other_names(monkeypatch):
    from jax._src.interpreters import mlir

    assert program.unavailable() is None
    program.unavailable.cache_clear()
    monkeypatch.delattr(mlir, "LoweringParameters")
    assert "lowers programs in another way (AttributeError" in (program.unavailable() or "")
    program.unavailable.cache_clear()


def test_a_platform_without_a_table_is_left_to_jax():
    pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID")
    text = Program(pool, platform="tpu").lower(jnp.arange(4.0)).as_text()
    assert "reduce_window" in text
