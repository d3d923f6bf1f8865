"""Attention beside JAX's own, and the exact GELU beside SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from jaxfl.models.attention import attention
from jaxfl.models.gelu import gelu


@pytest.mark.parametrize("seen", ["all", "causal", "texts"])
@pytest.mark.parametrize("groups", [2, 4])
def test_attention_and_its_gradients_are_those_of_jax(seen, groups):
    """Of several heads that share keys, and of a text without any id."""
    rng = np.random.default_rng(0)
    query, grad = (jnp.asarray(rng.normal(size=(2, 7, 4, 3)), jnp.float32) for _ in range(2))
    key, value = (jnp.asarray(rng.normal(size=(2, 7, groups, 3)), jnp.float32) for _ in range(2))
    lengths = jnp.array([4, 0])
    text = (jnp.arange(7)[None] < lengths[:, None])[:, None, None]
    mask = {"all": None, "causal": jnp.tri(7, dtype=bool), "texts": text}[seen]

    def of_jax(query, key, value):
        options = {"all": {}, "causal": {"is_causal": True}, "texts": {"mask": text}}[seen]
        return jax.nn.dot_product_attention(query, key, value, **options)

    ours, back = jax.vjp(lambda *given: attention(*given, mask), query, key, value)
    theirs, their_back = jax.vjp(of_jax, query, key, value)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    for one, other in zip(back(grad), their_back(grad), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("groups", [2, 4])
def test_attention_in_bfloat16_is_that_of_float32_rounded(groups):
    rng = np.random.default_rng(0)
    query = jnp.asarray(rng.normal(size=(2, 40, 4, 8)), jnp.bfloat16)
    key, value = (jnp.asarray(rng.normal(size=(2, 40, groups, 8)), jnp.bfloat16) for _ in range(2))
    exact = attention(*(one.astype(jnp.float32) for one in (query, key, value)))
    rounded = attention(query, key, value)
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(jnp.float32), exact, atol=0.01)


def test_gelu_and_its_gradient_are_those_of_the_normal_distribution():
    """From where it is almost 0 to where it is x."""
    x = np.linspace(-9, 9, 181)
    values, slopes = jax.vmap(jax.value_and_grad(gelu))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(values, x * norm.cdf(x), atol=2e-6)
    np.testing.assert_allclose(slopes, norm.cdf(x) + x * norm.pdf(x), atol=2e-6)


def test_gelu_in_bfloat16_is_that_of_float32_rounded():
    """Also far below zero, where 1 + erf has no digit of bfloat16."""
    x = jnp.linspace(-6, 6, 97, dtype=jnp.bfloat16)
    grads = jax.vmap(jax.value_and_grad(gelu))
    exact, rounded = grads(x.astype(jnp.float32)), grads(x)
    for one, other in zip(rounded, exact, strict=True):
        assert one.dtype == jnp.bfloat16
        np.testing.assert_allclose(one.astype(jnp.float32), other, rtol=0.004, atol=1e-30)
