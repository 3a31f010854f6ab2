"""Both forms of the embedding's gradient sum the rows of equal tokens, as the gradient of indexing does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedtrue.models import embedding
from fedtrue.models.embedding import embed

SMALL, LARGE = 20, embedding.SMALL_TABLE + 20  # one-hot product, equality product


def gradient_of(lookup, table, tokens, weights):
    return jax.jit(jax.grad(lambda table: (lookup(table, tokens) * weights).sum()))(table)


def problem(vocabulary, tokens_shape, lanes=()):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, vocabulary, (*lanes, *tokens_shape))
    tokens[..., :2] = vocabulary - 1  # the last word occurs many times
    table = rng.normal(size=(*lanes, vocabulary, 3)).astype(np.float32)
    return table, tokens, rng.normal(size=(*tokens.shape, 3)).astype(np.float32)


@pytest.mark.parametrize("vocabulary", [SMALL, LARGE])
@pytest.mark.parametrize("chunk", [1024, 7])
def test_embedding_gradient_equals_that_of_indexing(vocabulary, chunk, monkeypatch):
    monkeypatch.setattr(embedding, "CHUNK", chunk)  # 7: several products, the last one shorter
    table, tokens, weights = problem(vocabulary, (5, 6))
    np.testing.assert_array_equal(embed(table, tokens), table[tokens])
    expected = np.zeros_like(table)
    np.add.at(expected, tokens, weights)
    np.testing.assert_allclose(gradient_of(embed, table, tokens, weights), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vocabulary", [SMALL, LARGE])
def test_embedding_gradient_equals_that_of_indexing_in_every_lane(vocabulary):
    lanes = problem(vocabulary, (5, 6), lanes=(4,))
    own = jax.jit(jax.vmap(lambda *lane: gradient_of(embed, *lane)))(*lanes)
    plain = jax.vmap(lambda *lane: gradient_of(lambda table, tokens: table[tokens], *lane))(*lanes)
    np.testing.assert_allclose(own, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vocabulary", [SMALL, LARGE])
def test_embedding_gradient_has_no_scatter_with_repeated_addresses(vocabulary):
    table, tokens, weights = problem(vocabulary, (5, 6), lanes=(4,))
    program = str(jax.make_jaxpr(jax.vmap(lambda *lane: gradient_of(embed, *lane)))(table, tokens, weights))
    scatters = program.split("= scatter")[1:]
    assert len(scatters) == (0 if vocabulary == SMALL else 1)
    assert all("unique_indices=True" in scatter for scatter in scatters)


def test_tokens_may_be_small_integer_types():
    table = jnp.ones((LARGE, 2))
    tokens = jnp.array([255, 255, 3], jnp.uint8)
    gradient = gradient_of(embed, table, tokens, jnp.ones((3, 2)))
    assert gradient[255].tolist() == [2, 2] and gradient[3].tolist() == [1, 1] and gradient.sum() == 6
