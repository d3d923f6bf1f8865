"""Graphs with few edges, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.kernels.mixing import mix
from jaxfl.kernels.sparse import (
    SparseRows,
    dense_rows,
    keep_largest,
    largest_edges,
    mix_rows,
    sparse_rows,
)


def stochastic(clients, seed=0):
    rows = np.random.default_rng(seed).dirichlet(np.ones(clients), size=clients)
    return jnp.asarray(rows, jnp.float32)


def models(clients, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "body": {
            "kernel": jnp.asarray(rng.normal(size=(clients, 3, 2)), jnp.float32),
            "bias": jnp.asarray(rng.normal(size=clients), jnp.float32),
        },
        "head": jnp.asarray(rng.normal(size=(clients, 5)), jnp.bfloat16),
    }


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_row_keeps_its_own_weight_and_the_largest_of_the_others(count):
    weights = stochastic(7)
    found = np.asarray(keep_largest(weights, count))
    for i, row in enumerate(np.asarray(weights, np.float64)):
        others = sorted((j for j in range(7) if j != i), key=lambda j: -row[j])
        expected = np.zeros(7)
        kept = [i, *others[:count]]
        expected[kept] = row[kept] / row[kept].sum()
        np.testing.assert_allclose(found[i], expected, atol=1e-6)


def test_all_edges_stay_where_there_are_no_more():
    weights = stochastic(4)
    np.testing.assert_array_equal(keep_largest(weights, 3), weights)
    np.testing.assert_array_equal(keep_largest(weights, 9), weights)
    assert largest_edges(weights, 9).all()


def test_equal_weights_make_no_client_the_collaborator_of_all():
    edges = np.asarray(largest_edges(jnp.full((6, 6), 1 / 6), 2))
    np.testing.assert_array_equal(edges.sum(axis=0), 3)
    np.testing.assert_array_equal(edges.sum(axis=1), 3)


def test_a_row_that_would_keep_nothing_stays():
    weights = jnp.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]])
    found = keep_largest(weights, 1)
    np.testing.assert_array_equal(found[:2], weights[:2])
    np.testing.assert_allclose(found[2], [2 / 3, 0, 1 / 3], atol=1e-6)


def test_sparse_rows_have_all_entries_of_a_sparse_matrix_whatever_their_signs():
    matrix = np.zeros((3, 6), np.float32)
    matrix[[0, 0, 1, 2, 2], [5, 1, 0, 3, 4]] = [0.5, -0.25, 1.0, -2.0, 3.0]
    rows = sparse_rows(jnp.asarray(matrix), 2)
    assert rows.columns.shape == rows.values.shape == (3, 2)
    np.testing.assert_array_equal(dense_rows(rows, 6), matrix)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4, 40])
def test_mixing_by_sparse_rows_equals_the_product_with_their_matrix(count):
    rows = sparse_rows(stochastic(50)[:5], count)
    stacked = models(50)
    found = mix(rows, stacked)
    expected = mix(dense_rows(rows, 50), stacked)
    assert found["head"].dtype == jnp.bfloat16
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        tolerance = 1e-2 if one.dtype == jnp.bfloat16 else 1e-6
        np.testing.assert_allclose(np.float32(one), np.float32(other), atol=tolerance)


@pytest.mark.slow
def test_each_part_of_a_model_may_have_sparse_rows_or_a_matrix():
    stacked = models(4)
    rows = sparse_rows(stochastic(4), 2)
    found = mix({"body": rows, "head": jnp.eye(4)}, stacked)
    np.testing.assert_array_equal(found["head"], stacked["head"])
    expected = mix(dense_rows(rows, 4), stacked["body"])
    np.testing.assert_allclose(found["body"]["kernel"], expected["kernel"], atol=1e-6)


@pytest.mark.slow
def test_derivatives_are_those_of_the_matrix_whose_small_weights_are_zero():
    """By weights and by models; the edges that are left out have derivative zero."""
    weights = stochastic(5)
    stacked = models(5)["body"]
    edges = np.asarray(largest_edges(weights, 2))

    def total(mixed):
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(mixed))

    def by_rows(weights, stacked):
        return total(mix(sparse_rows(keep_largest(weights, 2), 3), stacked))

    def by_matrix(weights, stacked):
        kept = weights * edges
        return total(mix(kept / kept.sum(axis=1, keepdims=True), stacked))

    found = jax.grad(by_rows, (0, 1))(weights, stacked)
    expected = jax.grad(by_matrix, (0, 1))(weights, stacked)
    assert not np.asarray(found[0])[~edges].any()
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_mixing_needs_no_memory_for_the_models_of_all_edges():
    clients, count, size = 64, 16, 4096
    rows = SparseRows(jnp.zeros((clients, count), int), jnp.ones((clients, count)))
    program = jax.jit(mix_rows).lower(rows, jnp.ones((clients, size))).compile()
    edges_bytes = 4 * clients * count * size
    assert program.memory_analysis().temp_size_in_bytes < edges_bytes / 8
