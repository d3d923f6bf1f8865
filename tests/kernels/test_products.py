"""Mixtures of products of factors, against NumPy's singular values of whole matrices in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.kernels.products import mix_products


def nearest(weights, a, b):
    """The nearest matrices of the rank of the factors, and the distances to the mixtures."""
    products = np.float64(a) @ np.float64(b)
    rank = a.shape[2]
    found = []
    for row in np.float64(weights):
        whole = sum(weight * product for weight, product in zip(row, products, strict=True))
        u, values, vh = np.linalg.svd(whole, full_matrices=False)
        found.append(u[:, :rank] * values[:rank] @ vh[:rank])
    return np.stack(found)


@pytest.mark.long(every=5)
# M k smaller than, between and larger than the sides of the matrices.
@pytest.mark.parametrize(("models", "rank"), [(1, 2), (3, 2), (5, 2), (7, 3), (4, 1)])
def test_a_mixture_is_the_nearest_product_of_its_rank(models, rank):
    rng = np.random.default_rng(models)
    a = rng.normal(size=(models, 9, rank)).astype(np.float32)
    b = rng.normal(size=(models, rank, 14)).astype(np.float32)
    weights = rng.dirichlet(np.ones(models), size=3).astype(np.float32)
    first, second = mix_products(*map(jnp.asarray, (weights, a, b)))
    assert (first.shape, second.shape) == ((3, 9, rank), (3, rank, 14))
    np.testing.assert_allclose(first @ second, nearest(weights, a, b), atol=2e-5)
    inner = np.swapaxes(first, 1, 2) @ first
    np.testing.assert_allclose(inner, np.broadcast_to(np.eye(rank), inner.shape), atol=1e-5)


def test_models_that_differ_in_a_rotation_of_their_factors_are_one_model():
    """A R and R' B are the same adapter; the mean of the factors is none of it."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 2)), rng.normal(size=(2, 5))
    rotation = np.array([[0.0, 1.0], [-1.0, 0.0]])
    both = jnp.asarray([a, a @ rotation]), jnp.asarray([b, rotation.T @ b])
    first, second = mix_products(jnp.array([[0.5, 0.5]]), *both)
    np.testing.assert_allclose(first[0] @ second[0], a @ b, atol=1e-5)
    assert np.abs(both[0].mean(axis=0) @ both[1].mean(axis=0) - a @ b).max() > 0.5


def test_adapters_that_have_not_begun_add_nothing():
    a = jnp.ones((3, 4, 2))
    first, second = mix_products(jnp.full((1, 3), 1 / 3), a, jnp.zeros((3, 2, 5)))
    assert jnp.isfinite(first).all()
    np.testing.assert_array_equal(second, np.zeros((1, 2, 5)))
