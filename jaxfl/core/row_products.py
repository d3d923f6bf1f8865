"""Inner products of the rows of two matrices, x y', where the rows are whole models.

XLA for CPUs takes up to four times as long for the whole product as for pieces of the rows that fit
into the cache of a core, and half of a product with itself is the mirror image of the other.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree

from jaxfl.core import target
from jaxfl.core.backward import with_backward
from jaxfl.core.over_clients import devices_in_use, on_every_device

__all__ = ["row_products", "self_products"]

LONG_ROW = 16_384  # columns from which on they are multiplied piece by piece
BLOCK = 256  # rows of a product with itself that are multiplied with all rows from there on
FEW_ROWS = 64  # rows up to which a core takes shorter pieces


def row_products(x: Array, y: Array) -> Array:
    """The inner products of all rows of x with those of y: [M, D], [N, D] -> [M, N].

    Sums are float32, also of bfloat16; float64 of float64.

    Example:
      >>> row_products(jnp.array([[1.0, 2.0], [0.0, 3.0]]), jnp.array([[1.0, 1.0]])).tolist()
      [[3.0], [3.0]]
    """
    return _with_other(x, y) if target.platform() == "cpu" else _product(x, y)


def self_products(x: Array, unit: Float[Array, "m"] | None = None) -> Array:
    """The inner products of all pairs of rows, symmetric to the last digit: [M, D] -> [M, M].

    Args:
      x: [M, D].
      unit: of each row, which is divided by it [M]; None: 1. It has no gradient.

    Example:
      >>> self_products(jnp.array([[1.0, 2.0], [0.0, 3e30]]), jnp.array([1.0, 1e30])).tolist()
      [[5.0, 6.0], [6.0, 9.0]]
    """
    unit = jnp.ones(len(x), x.dtype) if unit is None else lax.stop_gradient(unit)
    if target.platform() == "cpu":
        return _with_itself(x, unit)
    rows = x / unit[:, None]
    return _product(rows, rows)


def _product(x: Array, y: Array) -> Array:
    number_type = jnp.result_type(x, y, jnp.float32)
    return jnp.matmul(x, y.T, precision=Precision.HIGHEST, preferred_element_type=number_type)


def _over_pieces(product: Callable, *matrices: Array) -> PyTree:
    """The sum of the products of all pieces of the columns; small matrices are one piece."""
    rows, columns = max(map(len, matrices)), matrices[0].shape[1]
    size = 512 if rows <= FEW_ROWS else 2048
    first = columns % size if columns >= LONG_ROW or rows > BLOCK else columns

    def step(turn: Array, total: PyTree) -> PyTree:
        start = first + turn * size
        pieces = (lax.dynamic_slice_in_dim(x, start, size, axis=1) for x in matrices)
        return jax.tree.map(jnp.add, total, product(*pieces))

    total = product(*(x[:, :first] for x in matrices))
    pieces = (columns - first) // size
    return lax.fori_loop(0, pieces, step, total) if pieces else total


def _in_pieces(x: Array, y: Array, units: tuple[Array, Array] | None = None) -> Array:
    def product(*pieces: Array) -> Array:
        if units is not None:
            pieces = tuple(p / unit[:, None] for p, unit in zip(pieces, units, strict=True))
        return _product(*pieces)

    return _over_pieces(product, x, y)


def _symmetric(x: Array, unit: Array) -> Array:
    if devices_in_use() > 1:
        # Each device has the rows of its clients; a gather for each piece would take longer.
        products = on_every_device(_own_rows, (x, unit))(x, unit)
    else:
        products = _upper_blocks(x, unit)
    return jnp.where(jnp.tri(len(x), k=-1, dtype=bool), products.T, products)


def _own_rows(every: tuple[Array, Array], x: Array, unit: Array) -> Array:
    rows, units = every
    return _in_pieces(x, rows, (unit, units))


def _upper_blocks(x: Array, unit: Array) -> Array:
    """The products of all pairs of rows on and above the diagonal, and some below it."""
    starts = range(0, max(len(x), 1), BLOCK)

    def products(piece: Array) -> list[Array]:
        rows = piece / unit[:, None]
        return [_product(rows[start : start + BLOCK], rows[start:]) for start in starts]

    blocks = _over_pieces(products, x)
    return jnp.concatenate([jnp.pad(b, ((0, 0), (len(x) - b.shape[1], 0))) for b in blocks])


# The gradient of a loop over pieces would write whole models for each piece.
_with_other = with_backward(
    lambda x, y: (_in_pieces(x, y), (x, y)),
    lambda needs, grad: (
        _gradient(grad, needs[1]).astype(needs[0].dtype),
        _gradient(grad.T, needs[0]).astype(needs[1].dtype),
    ),
)
_with_itself = with_backward(
    lambda x, unit: (_symmetric(x, unit), (x, unit)),
    lambda needs, grad: (_self_gradient(grad + grad.T, *needs), jnp.zeros_like(needs[1])),
)


def _gradient(grad: Array, rows: Array) -> Array:
    return jnp.matmul(grad, rows, precision=Precision.HIGHEST)


def _self_gradient(grad: Array, x: Array, unit: Array) -> Array:
    scaled = x / unit[:, None]
    return (_gradient(grad, scaled) / unit[:, None]).astype(x.dtype)
