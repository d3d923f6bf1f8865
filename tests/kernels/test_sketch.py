"""Sketches of models against exact inner products in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.sketch import sketches

SIZE = 32


def alike(rng, shape):
    """Two groups of models that are alike."""
    return np.arange(shape[0])[:, None] % 2 * 1.0 + rng.normal(size=shape)


def runs(rng, shape):
    """Models that are zero but for a run of equal entries in each block."""
    return (np.arange(shape[1])[None] % SIZE < 4) * rng.normal(size=(shape[0], 1))


def lone(rng, shape):
    """Models of few entries that are not zero."""
    return rng.normal(size=shape) * (rng.random(shape) < 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("models_of", [alike, runs, lone])
def test_inner_products_are_unbiased_with_the_variance_of_johnson_and_lindenstrauss(models_of):
    """Over 400 keys; the models have two leaves, neither a multiple of the size."""
    rng = np.random.default_rng(0)
    x = models_of(rng, (4, 1000)).astype(np.float32)
    stacked = {"a": jnp.asarray(x[:, :700]).reshape(4, 7, 100), "b": jnp.asarray(x[:, 700:])}
    keys = jax.random.split(jax.random.key(0), 400)
    found = jax.jit(jax.vmap(lambda key: sketches(key, stacked, SIZE)))(keys)
    found = np.asarray(found, np.float64)
    assert found.shape == (400, 4, SIZE)
    exact = np.float64(x) @ np.float64(x).T
    squares = np.diagonal(exact)
    errors = np.einsum("kid,kjd->kij", found, found) - exact
    bound = (squares[:, None] * squares[None] + exact**2) / SIZE
    scale = np.sqrt(bound.max() / 400)
    assert np.abs(errors.mean(axis=0)).max() < 4 * scale
    assert ((errors**2).mean(axis=0) <= 1.5 * bound + 1e-9).all()


@pytest.mark.slow
def test_more_numbers_make_smaller_errors_of_cosines():
    x = alike(np.random.default_rng(1), (20, 5000)).astype(np.float32)
    exact = np.float64(x) @ np.float64(x).T
    norms = np.sqrt(np.diagonal(exact))
    exact = exact / norms[:, None] / norms[None]
    for size in (64, 1024):
        found = cosine(sketches(jax.random.key(3), jnp.asarray(x), size))
        error = np.sqrt(np.mean((found - exact)[~np.eye(20, dtype=bool)] ** 2))
        assert 0.3 / np.sqrt(size) < error < 1.2 / np.sqrt(size)


@pytest.mark.slow
def test_the_projection_is_one_sign_for_each_parameter_and_blocks_do_not_meet_themselves():
    """The matrix of the projection is the sketch of the identity."""
    size, parameters = 8, 29
    matrix = np.asarray(sketches(jax.random.key(1), jnp.eye(parameters), size))
    assert matrix.shape == (parameters, size)
    np.testing.assert_array_equal(np.abs(matrix).sum(axis=1), 1)
    np.testing.assert_array_equal(np.abs(matrix).max(axis=1), 1)
    for start in range(0, parameters, size):
        assert np.abs(matrix[start : start + size]).sum(axis=0).max() == 1
    assert 5 < (matrix.sum(axis=1) > 0).sum() < 24
    other = np.asarray(sketches(jax.random.key(2), jnp.eye(parameters), size))
    assert (matrix != other).any()


def test_a_leaf_that_is_not_larger_than_the_sketch_keeps_its_inner_products():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3, 4)), jnp.float32)
    found = sketches(jax.random.key(0), x, 12)
    np.testing.assert_allclose(cosine(found), cosine(x), atol=1e-6)


def test_the_matrix_of_the_projection_does_not_exist():
    clients, parameters, size = 4, 50_000, 512
    program = jax.jit(lambda key, x: sketches(key, x, size))
    shape = jax.ShapeDtypeStruct((clients, parameters), jnp.float32)
    memory = program.lower(jax.random.key(0), shape).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * clients * parameters
