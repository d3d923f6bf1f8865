"""Products of long rows, in pieces and by blocks, are those of NumPy; so are their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.row_products import BLOCK, LONG_ROW, row_products, self_products

# Long rows go in pieces, of which the first is shorter or empty; many rows by blocks.
SHAPES = [
    (3, 5),
    (4, LONG_ROW + 7),
    (65, LONG_ROW),
    (65, LONG_ROW + 7),
    (BLOCK + 3, 2057),
    (4 * BLOCK - 1, 2),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_products_and_gradients_are_those_of_numpy(shape):
    rng = np.random.default_rng(shape[0])
    x = rng.normal(size=shape).astype(np.float32)
    y = rng.normal(size=(2, shape[1])).astype(np.float32)
    own = jax.jit(self_products)(x)
    scale = np.sqrt(shape[1])
    np.testing.assert_allclose(own / scale, np.float64(x) @ x.T / scale, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(own, own.T)
    other = jax.jit(row_products)(x, y)
    np.testing.assert_allclose(other / scale, np.float64(x) @ y.T / scale, rtol=1e-4, atol=1e-4)

    grad = rng.normal(size=own.shape).astype(np.float32)
    (by_x,) = jax.vjp(self_products, jnp.array(x))[1](jnp.array(grad))
    np.testing.assert_allclose(by_x, np.float64(grad + grad.T) @ x, rtol=1e-3, atol=1e-2)
    grad = rng.normal(size=other.shape).astype(np.float32)
    by_x, by_y = jax.vjp(row_products, jnp.array(x), jnp.array(y))[1](jnp.array(grad))
    np.testing.assert_allclose(by_x, np.float64(grad) @ y, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(by_y, np.float64(grad.T) @ x, rtol=1e-3, atol=1e-2)


def test_units_divide_rows_and_their_gradients():
    x = np.float32([[1.0, 2.0], [3e20, -6e20], [0.0, 4.0]])
    unit = np.float32([0.5, 1e20, 4.0])
    rows = np.float64(x) / unit[:, None]
    np.testing.assert_allclose(
        self_products(jnp.array(x), jnp.array(unit)), rows @ rows.T, rtol=1e-6
    )
    grad = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    (by_x,) = jax.vjp(lambda x: self_products(x, jnp.array(unit)), jnp.array(x))[1](jnp.array(grad))
    np.testing.assert_allclose(by_x, (grad + grad.T) @ rows / unit[:, None], rtol=1e-5)
