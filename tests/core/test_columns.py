"""Columns are reduced and ordered as NumPy does it, whatever the number of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.columns import column_sum, order_statistics

# Of a group of rows that is whole, and of one that is not.
COUNTS = [1, 2, 3, 7, 8, 9, 16, 29, 100]


@pytest.mark.parametrize("count", COUNTS)
def test_columns_are_those_of_numpy(count):
    x = np.random.default_rng(count).normal(size=(count, 5, 2)).astype(np.float32)
    x[count // 2] = np.inf
    all_ranks = jax.jit(order_statistics)(jnp.array(x), jnp.arange(count))
    np.testing.assert_array_equal(all_ranks, np.sort(x, axis=0))
    x[count // 2] = 1.0
    np.testing.assert_allclose(jax.jit(column_sum)(x), x.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_a_stack_of_stacks_is_ordered_by_rows():
    x = np.random.default_rng(0).normal(size=(3, 11, 4)).astype(np.float32)
    found = jax.vmap(order_statistics, (0, None))(jnp.array(x), jnp.array([0, 9]))
    np.testing.assert_array_equal(found, np.sort(x, axis=1)[:, [0, 9]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_numbers_of_both_signs_ties_and_the_smallest_are_ordered(dtype):
    tiny = float(jnp.finfo(dtype).smallest_subnormal)
    x = jnp.array([[0.0, 2.0, -tiny, -jnp.inf, 2.0, tiny, -3.0, jnp.inf]], dtype).T
    found = order_statistics(x, jnp.arange(8)).astype("float32")
    np.testing.assert_array_equal(found, np.sort(np.asarray(x, "float32"), axis=0))
