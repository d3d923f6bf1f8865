"""Products of long rows, in pieces and by halves, are those of NumPy; so are their gradients."""

import jax
import numpy as np
import pytest

from jaxfl.core.row_products import FEW, HALVES, PIECE, row_products

# Few long rows go in pieces, of which the first is shorter; many rows by halves, odd ones too.
SHAPES = [(3, 5), (4, 8 * PIECE + 7), (FEW + 1, 8 * PIECE), (HALVES + 3, 9), (4 * HALVES - 1, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_products_and_gradients_are_those_of_numpy(shape):
    rng = np.random.default_rng(shape[0])
    x = rng.normal(size=shape).astype(np.float32)
    y = rng.normal(size=(2, shape[1])).astype(np.float32)
    own = jax.jit(lambda x: row_products(x, x))(x)
    scale = np.sqrt(shape[1])
    np.testing.assert_allclose(own / scale, np.float64(x) @ x.T / scale, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(own, own.T)
    other = jax.jit(row_products)(x, y)
    np.testing.assert_allclose(other / scale, np.float64(x) @ y.T / scale, rtol=1e-4, atol=1e-4)

    grad = rng.normal(size=own.shape).astype(np.float32)
    (by_x,) = jax.vjp(lambda x: row_products(x, x), x)[1](grad)
    np.testing.assert_allclose(by_x, np.float64(grad + grad.T) @ x, rtol=1e-3, atol=1e-2)
    grad = rng.normal(size=other.shape).astype(np.float32)
    by_x, by_y = jax.vjp(row_products, x, y)[1](grad)
    np.testing.assert_allclose(by_x, np.float64(grad) @ y, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(by_y, np.float64(grad.T) @ x, rtol=1e-3, atol=1e-2)
